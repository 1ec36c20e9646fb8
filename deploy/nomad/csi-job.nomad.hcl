# Writes to the volume of volume.hcl: nomad job run csi-job.nomad.hcl
#
# A new filesystem's root directory belongs to root, whom the driver exec does not run tasks as unless the client's configuration
# says so: options { "user.denylist" = "none" }. With docker tasks are root.
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
      user   = "root"

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
