"""Images from a Debian tree, in Podman."""
