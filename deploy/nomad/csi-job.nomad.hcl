# Writes to the volume of volume.hcl: nomad job run csi-job.nomad.hcl
#
# A new filesystem's root directory belongs to root, and the driver exec runs tasks as nobody. Before the first job, on the node:
#
#   drivebay-agent volume mount db /mnt && chmod 0777 /mnt && drivebay-agent volume unmount db
job "drivebay-csi" {
  group "writer" {
    volume "data" {
      type            = "csi"
      source          = "db"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-ec", "while :; do date | tee -a /data/written; sync; sleep 1; done"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
