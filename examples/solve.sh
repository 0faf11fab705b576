set -euo pipefail

for step in 1 2 3; do
    echo "{\"step\": $step, \"note\": \"part $step\"}" >> "$EVALFLEET_EVENTS"
    echo "part $step of $EVALFLEET_ATTEMPT"
done
cp "$EVALFLEET_TASK" "$EVALFLEET_ARTIFACTS/task.json"
echo '{"score": 1.0, "steps": 3}' > "$EVALFLEET_RESULT"
