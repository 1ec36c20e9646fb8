# Writes to the volume of host-volume.hcl: nomad job run trial.nomad.hcl
#
# The drivers exec, java and docker can mount volumes; raw_exec cannot.
job "drivebay-trial" {
  group "writer" {
    # It runs on the node that has the volume.
    volume "data" {
      type            = "host"
      source          = "db"
      access_mode     = "single-node-single-writer"
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
