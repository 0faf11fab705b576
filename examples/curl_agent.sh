#!/usr/bin/env bash
# An agent that is a command: clicks the button that the goal puts in quotes, or any button where it quotes nothing.
#
# evalfleet run miniwob --agent "cmd:bash curl_agent.sh" --task click-button --task click-test
set -euo pipefail

guest() { # PATH [BODY]
    curl --silent --show-error --fail --header "Authorization: Bearer $EVALFLEET_GUEST_TOKEN" \
        ${2:+--data "$2"} "$EVALFLEET_GUEST$1"
}

wanted=$(sed -n 's/.*"\(.*\)".*/\1/p' <<<"$EVALFLEET_GOAL")
button=$(guest /elements | grep '"tag": "button"' | grep -F "\"text\": \"$wanted" | head -n 1)
point=$(sed 's/.*"point": {\([^}]*\)}.*/\1/' <<<"$button")
guest /input "{\"do\": \"click\", $point}"
