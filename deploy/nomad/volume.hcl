# A volume on node rack1-node7: nomad volume create volume.hcl
id        = "db"
name      = "db"
type      = "csi"
plugin_id = "drivebay-rack1-node7"

capacity_min = "10GiB"
capacity_max = "10GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

parameters {
  class = "fast"
}

mount_options {
  fs_type = "xfs"
}

# A volume is where its drive is; so is the job that uses it.
topology_request {
  required {
    topology {
      segments {
        "csi.drivebay.io/node" = "rack1-node7"
      }
    }
  }
}
