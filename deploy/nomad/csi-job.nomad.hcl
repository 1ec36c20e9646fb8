# Writes to the volume of volume.hcl: nomad job run csi-job.nomad.hcl
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
      # A new filesystem belongs to root.
      user = "root"

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
