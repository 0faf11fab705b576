"""What every desktop of `desk` has in its home folder from the beginning: applications without their first-run talk."""

from __future__ import annotations

from evalfleet.environments.base import Environment

_OFFICE = ".config/libreoffice/4/user/registrymodifications.xcu"
_OFFICE_SETTINGS = (
    ("/org.openoffice.Office.Common/Misc", "FirstRun", "false"),
    ("/org.openoffice.Office.Common/Misc", "ShowTipOfTheDay", "false"),
    ("/org.openoffice.Office.Common/Save/Document", "WarnAlienFormat", "false"),  # keeps a CSV file a CSV file
    ("/org.openoffice.Setup/Office", "ooSetupInstCompleted", "true"),
    # As if shown already, by a version that is newer than any: news of the version, and the calls for help and money.
    ("/org.openoffice.Setup/Product", "ooSetupLastVersion", "999.9"),
    ("/org.openoffice.Setup/Product", "LastTimeDonateShown", "4102444800"),
    ("/org.openoffice.Setup/Product", "LastTimeGetInvolvedShown", "4102444800"),
)


def prepare(environment: Environment) -> None:
    """Write the files. Before any application is started."""
    environment.write(_OFFICE, _office().encode())


def _office() -> str:
    items = "".join(
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
        for path, name, value in _OFFICE_SETTINGS
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema"'
        f' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">{items}</oor:items>'
    )
