"""Remote tier: buckets and web folders that are asked after all directories, and that builds are uploaded to."""
