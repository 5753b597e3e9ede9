"""The typed core that agent, server and client share: records they exchange, addresses, files, settings."""
