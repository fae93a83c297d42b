"""From traffic to the flow records that a collector exports."""
