# Drivebay on one Nomad node, as a monolith plugin: the agent is node and controller in one (--headless).
#
#   nomad job run -var node=rack1-node7 -var image=registry.example.net/drivebay:0.1.0 agent.nomad.hcl
#
# Run it once per node: each node is a plugin of its own, "drivebay-NODE", since a monolith's controller knows its own
# drives only and Nomad would ask any of them. Needs the docker driver with privileged containers
# (plugin "docker" { config { allow_privileged = true  volumes { enabled = true } } }).

variable "node" {
  type        = string
  description = "the Nomad node's unique name; also the node id, which is part of every volume id: never change it"
}

variable "image" {
  type = string
}

variable "datacenters" {
  type    = list(string)
  default = ["*"]
}

job "drivebay" {
  name        = "drivebay-${var.node}"
  id          = "drivebay-${var.node}"
  type        = "system"
  datacenters = var.datacenters

  constraint {
    attribute = "${node.unique.name}"
    value     = var.node
  }

  group "agent" {
    task "agent" {
      driver = "docker"

      config {
        image      = var.image
        command    = "drivebay-agent"
        args       = ["run", "--config", "/local/drivebay.toml", "--headless", "--log-format", "json"]
        privileged = true
        pid_mode   = "host"
        volumes = [
          "/dev:/dev",
          "/sys:/sys",
          "/run/udev:/run/udev:ro",
          "/run/lock/lvm:/run/lock/lvm",
          "/run/drivebay:/run/drivebay",
          "/var/lib/drivebay:/var/lib/drivebay",
          "/etc/machine-id:/etc/machine-id:ro",
        ]
      }

      # agent/drivebay.example.toml explains every key. Choose drives with claim-plan first.
      template {
        destination = "local/drivebay.toml"
        data        = <<-TOML
          [node]
          name = "${var.node}"
          [csi]
          socket = "/csi/csi.sock"
          [kubelet]
          registration = false

          [[class]]
          name = "fast"
          [class.select]
          media = ["nvme"]
          min-size = "100GB"
        TOML
      }

      csi_plugin {
        id             = "drivebay-${var.node}"
        type           = "monolith"
        mount_dir      = "/csi"
        health_timeout = "3m"
      }

      kill_timeout = "20s"

      resources {
        cpu    = 100
        memory = 256
        # mkfs and checks run in here.
        memory_max = 4096
      }
    }
  }
}
