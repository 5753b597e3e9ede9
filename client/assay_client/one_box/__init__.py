"""``assay run`` on one box: a command as a campaign, resumed after interruptions."""
