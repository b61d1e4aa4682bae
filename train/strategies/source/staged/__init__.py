"""A dataset on a shared file system that is copied to the nodes' own disks."""
