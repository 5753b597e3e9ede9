"""One box and its person: a command as a campaign, and runs that go on where they were interrupted."""
