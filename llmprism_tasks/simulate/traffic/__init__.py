"""Everything that is sent: the steps of jobs on the clock, their start-ups and storage, other tenants, chatter."""
