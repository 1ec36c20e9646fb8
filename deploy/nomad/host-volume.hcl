# A dynamic host volume: nomad volume create host-volume.hcl
type      = "host"
name      = "db"
plugin_id = "drivebay"

# Both are needed. Nomad does not ask how much space a node has: where there is too little, creating fails and says so.
capacity_min = "1GiB"
capacity_max = "2GiB"

capability {
  access_mode     = "single-node-single-writer"
  attachment_mode = "file-system"
}

# Without it Nomad chooses any node that has the plugin.
#constraint {
#  attribute = "${node.unique.name}"
#  value     = "rack1-node7"
#}

# class (may be left out where there is one), fsType, mkfsOptions and mountOptions are those of a StorageClass; uid, gid and mode
# (octal) are of the new volume's root directory.
parameters {
  fsType = "ext4"
  mode   = "0777"
}
