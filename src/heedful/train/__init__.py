"""The loop and what it needs: optimizer, schedule, checkpoints, ranks, reports."""
