"""The subcommands of assay-agent that have their own subcommands."""
