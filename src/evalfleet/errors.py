"""All errors that evalfleet raises on purpose.

::

    EvalfleetError
    ├── InputError               exit 2: the user's words or files are wrong
    │   ├── TaskFileError        names the file, the line or key, and the remedy
    │   ├── HostsFileError       the same for a file of hosts
    │   ├── ConfigError
    │   ├── NotFound             no such run, task or attempt
    │   └── AmbiguousId          a prefix that fits several
    ├── Refused                  exit 3: right words, wrong moment
    │   ├── Owned                another controller drives this run
    │   ├── WrongState           the run or task is not in a state that allows it
    │   │   └── RunOver          nothing of the run is left to drive
    │   ├── MissingSecret        a secret's variable is not set
    │   ├── NoSuchGpus           no host could ever give what is asked for
    │   ├── GpuTimeout           the GPUs were not free in time
    │   └── EpisodeOver          inside an attempt: its agent may not act any more
    ├── StoreError               exit 2: the home cannot be used
    │   ├── StoreUnwritable
    │   ├── StoreCorrupt
    │   ├── StoreTooNew          written by a newer version
    │   └── StoreBusy            another process held the write lock too long
    ├── FilesUnreachable         exit 3: the place of the files does not answer, or refuses us; says what to do
    ├── BackendError             instruction to the engine: count against the backend's breaker
    │   ├── HostUnreachable      nothing answers there, or the connection broke
    │   ├── HostRefused          it answers, and we cannot use it: its key, our login, its Python
    │   ├── CloudError           the cloud said no, or nothing; says what to do
    │   ├── RunnerUnavailable    no runner could be started
    │   └── RunnerRefused        the runner answered, and said no
    ├── EnvironmentFailed        inside an attempt: its world does not work; failure `environment_failed`
    │   ├── BrowserError
    │   │   ├── BrowserGone      it ended, or never began
    │   │   ├── BrowserTimeout   it did not answer in time
    │   │   └── BrowserRefused   it answered, and said no
    │   │       └── ScriptFailed     a page's JavaScript threw something
    │   ├── DesktopError         a part of it did not come up, ended, or does not answer
    │   │   └── DesktopRefused   the X server answered, and said no
    │   └── VmError              QEMU or its guest did not come up, ended, or does not answer
    ├── ServiceFailed            inside an attempt: a service that all tasks need; failure `service_failed`
    │   └── ServiceRefused       the same, and only a person can change it; failure `service_refused`
    └── AgentFailed              inside an attempt: the agent's own error; failure `bad_exit`

The docstring of a class is its default message.
"""

from __future__ import annotations


class EvalfleetError(Exception):
    """evalfleet cannot go on."""

    exit_code = 2

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or "")


class InputError(EvalfleetError):
    """The input is not usable."""


class TaskFileError(InputError):
    """The task file is not usable."""


class HostsFileError(InputError):
    """The hosts file is not usable."""


class ConfigError(InputError):
    """The configuration is not usable."""


class NotFound(InputError):
    """There is no such thing."""


class AmbiguousId(InputError):
    """The shortened id fits more than one."""


class Refused(EvalfleetError):
    """Not possible at this moment."""

    exit_code = 3


class CopiedHome(Refused):
    """This home is a copy of another one."""


class NotJoined(Refused):
    """This folder is not one of the home that its store belongs to."""


class WrongFolder(Refused):
    """The run can be driven in another folder of the home only."""


class Owned(Refused):
    """Another controller drives this run."""


class WrongState(Refused):
    """Its state does not allow that."""


class RunOver(WrongState):
    """The run is over."""


class MissingSecret(Refused):
    """A secret's environment variable is not set."""


class NoSuchGpus(Refused):
    """No host has the GPUs that are asked for."""


class GpuTimeout(Refused, TimeoutError):
    """The GPUs were not free in time."""


class EpisodeOver(Refused):
    """The episode is over."""


class StoreError(EvalfleetError):
    """The home folder's database cannot be used."""


class StoreUnwritable(StoreError):
    """The home folder cannot be written."""


class StoreCorrupt(StoreError):
    """The database is damaged."""


class StoreTooNew(StoreError):
    """The database was written by a newer evalfleet."""


class StoreForeign(StoreError):
    """The database was made by an evalfleet that this one does not come from, so that it cannot be brought up to date."""


class StoreBusy(StoreError):
    """Another process held the database's write lock for too long."""


class StoreFenced(StoreError):
    """Another process took over while the connection to the database was cut."""

    exit_code = 3


class StoreCut(StoreError):
    """The connection to the database was cut in the middle of a change, which was undone."""

    exit_code = 3


class StoreRestored(StoreError):
    """The database is older than what this home has seen of it."""


class FilesUnreachable(EvalfleetError):
    """The files of attempts cannot be reached."""

    exit_code = 3


class BackendError(EvalfleetError):
    """The backend failed."""

    exit_code = 3


class HostUnreachable(BackendError):
    """The host cannot be reached."""


class HostRefused(BackendError):
    """The host cannot be used."""


class CloudError(BackendError):
    """The cloud refused."""


class RunnerUnavailable(BackendError):
    """No runner could be started."""


class RunnerRefused(BackendError):
    """The runner refused the command."""


class EnvironmentFailed(EvalfleetError):
    """The environment does not work."""


class ServiceFailed(EvalfleetError):
    """A service that the task needs does not answer."""


class ServiceRefused(ServiceFailed):
    """A service that the task needs refuses us."""


class AgentFailed(EvalfleetError):
    """The agent failed."""


class BrowserError(EnvironmentFailed):
    """The browser cannot be used."""


class BrowserGone(BrowserError):
    """The browser is gone."""


class BrowserTimeout(BrowserError):
    """The browser did not answer in time."""


class BrowserRefused(BrowserError):
    """The browser refused the command."""


class ScriptFailed(BrowserRefused):
    """A script failed in the page."""


class DesktopError(EnvironmentFailed):
    """The desktop cannot be used."""


class DesktopRefused(DesktopError):
    """The X server refused the request."""


class VmError(EnvironmentFailed):
    """The virtual machine cannot be used."""
