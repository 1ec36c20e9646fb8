# Drivebay as a CSI plugin of one Nomad node, without a container: the program that is installed on the node, run by the driver
# raw_exec as Nomad's user, who must be root. As agent.nomad.hcl does it with docker, the agent is node and controller in one.
#
#   nomad job run -var node=rack1-node7 agent-on-host.nomad.hcl
#
# Not beside an agent that systemd runs. Needs plugin "raw_exec" { config { enabled = true } } in the client's configuration.

variable "node" {
  type        = string
  description = "the Nomad node's unique name; also the node id, which is part of every volume id: never change it"
}

variable "data_dir" {
  type        = string
  default     = "/opt/nomad/data"
  description = "data_dir of that node's Nomad agent: without a container, plugin and Nomad have the same paths"
}

variable "program" {
  type    = string
  default = "/usr/bin/drivebay-agent"
}

variable "config" {
  type        = string
  default     = <<-TOML
    [[class]]
    name = "fast"
    [class.select]
    media = ["nvme"]
    min-size = "100GB"
  TOML
  description = "sections of the agent's configuration besides those below; agent/drivebay.example.toml explains every key"
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
      driver = "raw_exec"

      config {
        command = var.program
        args    = ["run", "--config", "${NOMAD_TASK_DIR}/drivebay.toml", "--headless", "--log-format", "json"]
      }

      template {
        destination = "local/drivebay.toml"
        data        = <<-TOML
          [node]
          name = "${var.node}"
          [csi]
          socket = "${var.data_dir}/client/csi/plugins/{{ env "NOMAD_ALLOC_ID" }}/csi.sock"
          [kubelet]
          registration = false

          ${var.config}
        TOML
      }

      csi_plugin {
        id   = "drivebay-${var.node}"
        type = "monolith"
        # Where Nomad keeps staged and published volumes, which is where the agent sees them.
        stage_publish_base_dir = "${var.data_dir}/client/csi/monolith/drivebay-${var.node}"
        health_timeout         = "3m"
      }

      kill_timeout = "20s"

      resources {
        cpu    = 100
        memory = 256
      }
    }
  }
}
