{{/*
The agent's configuration. Strings and lists are written as JSON, which TOML reads the same. The node's name is put in
by the init container: a ConfigMap is the same for all nodes.
*/}}
{{- define "drivebay.config" -}}
# Written by the chart. Every key is explained in agent/drivebay.example.toml.
[node]
name = "@NODE_NAME@"
cluster = {{ .Values.clusterName | toJson }}

[csi]
driver-name = {{ .Values.driverName | toJson }}

[kubelet]
dir = {{ .Values.kubeletDir | toJson }}
registration = true

[discovery]
rescan = {{ .Values.agent.rescan | toJson }}
{{- if .Values.agent.allowLoop }}
allow-loop = true
{{- end }}

[erase]
max-bytes-per-second = {{ .Values.agent.erase.maxBytesPerSecond | toJson }}
quarantine = {{ .Values.agent.erase.quarantine | toJson }}

[probes]
listen = {{ printf "%s:9808" (include "drivebay.anywhere" .) | toJson }}

{{- if .Values.metrics.enabled }}

[metrics]
listen = {{ printf "%s:%v" (include "drivebay.anywhere" .) .Values.metrics.agentPort | toJson }}
{{- end }}

[controller]
addresses = [{{ printf "%s:%v" (include "drivebay.controllerHost" .) .Values.controller.port | toJson }}]
ca = "/etc/drivebay-tls/ca.pem"
{{- if eq .Values.certificates.nodes "tokens" }}
token = "/etc/drivebay-tls/token"
{{- else }}
cert = "/etc/drivebay-tls/node.pem"
key = "/etc/drivebay-tls/node-key.pem"
{{- end }}
{{- range .Values.classes }}

[[class]]
name = {{ .name | toJson }}
{{- with .layout }}
layout = {{ . | toJson }}
{{- end }}
{{- with .placement }}
placement = {{ . | toJson }}
{{- end }}
{{- if hasKey . "priority" }}
priority = {{ int .priority }}
{{- end }}
{{- with .claim }}
claim = {{ . | toJson }}
{{- end }}
{{- with .erase }}
erase = {{ . | toJson }}
{{- end }}
{{- with .fs }}
fs = {{ . | toJson }}
{{- end }}
{{- with index . "mkfs-options" }}
mkfs-options = {{ . | toJson }}
{{- end }}
{{- with index . "mount-options" }}
mount-options = {{ . | toJson }}
{{- end }}
{{- if hasKey . "allow-removable" }}
allow-removable = {{ index . "allow-removable" }}
{{- end }}
{{- if hasKey . "xfs-retry-forever" }}
xfs-retry-forever = {{ index . "xfs-retry-forever" }}
{{- end }}

[class.select]
{{- range $key, $value := .select }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end }}
