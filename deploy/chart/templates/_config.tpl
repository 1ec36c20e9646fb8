{{/*
The agent's configuration. The node's name is put in by the init container: a ConfigMap is the same for all nodes of a
group. Called with (list . GROUP), GROUP as in "drivebay.groups".
*/}}
{{- define "drivebay.config" -}}
{{- $root := index . 0 -}}
{{- $group := index . 1 -}}
{{- $config := fromYaml (include "drivebay.generatedConfig" .) -}}
{{- range list $root.Values.agent.config $group.config -}}
{{- $config = mergeOverwrite $config (deepCopy (. | default dict)) -}}
{{- end -}}
# Written by the chart. Every key is explained in agent/drivebay.example.toml.
{{- include "drivebay.toml" (list "" $config) }}
{{- end }}

{{/* What follows from the other values, as YAML. */}}
{{- define "drivebay.generatedConfig" -}}
{{- $group := index . 1 -}}
{{- with index . 0 -}}
node: {name: "@NODE_NAME@", cluster: {{ .Values.clusterName | toJson }}}
csi: {driver-name: {{ .Values.driverName | toJson }}}
kubelet: {dir: {{ .Values.kubeletDir | toJson }}, registration: true}
discovery:
  rescan: {{ .Values.agent.rescan | toJson }}
  {{- if or .Values.agent.allowLoop .Values.trial.enabled }}
  allow-loop: true
  {{- end }}
erase:
  max-bytes-per-second: {{ .Values.agent.erase.maxBytesPerSecond | toJson }}
  quarantine: {{ .Values.agent.erase.quarantine | toJson }}
probes: {listen: {{ printf "%s:9808" (include "drivebay.anywhere" .) | toJson }}}
{{- if .Values.metrics.enabled }}
metrics: {listen: {{ printf "%s:%v" (include "drivebay.anywhere" .) .Values.metrics.agentPort | toJson }}}
{{- end }}
controller:
  addresses: [{{ printf "%s:%v" (include "drivebay.controllerHost" .) .Values.controller.port | toJson }}]
  ca: /etc/drivebay-tls/ca.pem
  {{- if eq .Values.certificates.nodes "tokens" }}
  token: /etc/drivebay-tls/token
  {{- else }}
  cert: /etc/drivebay-tls/node.pem
  key: /etc/drivebay-tls/node-key.pem
  {{- end }}
  drive-verbs: {{ .Values.agent.driveVerbs | toJson }}
{{- with $group.classes }}
class:
  {{- range . }}
  - {{ omit . "storageClass" | toJson }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
A table in TOML: its plain keys, then its tables. helm's own toToml writes a whole number of a values file as 1.0, which is
no number of times. Called with (list PATH TABLE).
*/}}
{{- define "drivebay.toml" -}}
{{- $path := index . 0 -}}
{{- $plain := dict -}}
{{- $tables := dict -}}
{{- range $key, $value := index . 1 -}}
{{- $name := regexMatch "^[A-Za-z0-9_-]+$" $key | ternary $key (toJson $key) -}}
{{- if or (kindIs "map" $value) (and (kindIs "slice" $value) $value (kindIs "map" (first $value))) -}}
{{- $_ := set $tables $name $value -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $plain $name $value -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $plain }}
{{ $name }} = {{ include "drivebay.tomlValue" $value }}
{{- end }}
{{- range $name, $value := $tables }}
{{- $at := empty $path | ternary $name (printf "%s.%s" $path $name) }}
{{- if kindIs "map" $value }}

[{{ $at }}]
{{- include "drivebay.toml" (list $at $value) }}
{{- else }}
{{- range $value }}

[[{{ $at }}]]
{{- include "drivebay.toml" (list $at .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Strings are written as JSON, which TOML reads the same. All numbers of a values file are fractions to helm. */}}
{{- define "drivebay.tomlValue" -}}
{{- if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . -}}{{- $values = append $values (include "drivebay.tomlValue" .) -}}{{- end -}}
[{{ join ", " $values }}]
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- end }}

{{/*
The groups of nodes with a DaemonSet each, as JSON in "groups": the ones of agent.groups, and last the nodes of none, whose
name is empty. `suffix` ends the names of a group's objects, `component` is its pods' label.
*/}}
{{- define "drivebay.groups" -}}
{{- $groups := list -}}
{{- $ofAll := (include "drivebay.classes" . | fromJson).classes -}}
{{- range .Values.agent.groups -}}
{{- $classes := hasKey . "classes" | ternary .classes $ofAll -}}
{{- $groups = append $groups (dict "name" .name "suffix" (printf "agent-%s" .name) "nodeSelector" .nodeSelector
    "config" (.config | default dict) "classes" $classes) -}}
{{- end -}}
{{- $groups = append $groups (dict "name" "" "suffix" "agent" "nodeSelector" dict "config" dict "classes" $ofAll) -}}
{{ dict "groups" $groups | toJson }}
{{- end }}

{{/* The labels `component` of all agents, as a selector's requirement. */}}
{{- define "drivebay.agentSelector" -}}
{{- $components := list -}}
{{- range (include "drivebay.groups" . | fromJson).groups -}}{{- $components = append $components .suffix -}}{{- end -}}
matchLabels:
  {{- if len $components | eq 1 }}
  {{- include "drivebay.selector" (list . "agent") | nindent 2 }}
  {{- else }}
  app.kubernetes.io/name: {{ include "drivebay.name" . }}
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: {{ toJson $components }}}
  {{- end }}
{{- end }}

{{/*
On which nodes a group's DaemonSet runs: not on those of the groups before it. Kubernetes knows no "not these labels" for
several labels at once, so a group has one. Called with (list . GROUP).
*/}}
{{- define "drivebay.groupAffinity" -}}
{{- $root := index . 0 -}}
{{- $group := index . 1 -}}
{{- $affinity := deepCopy $root.Values.agent.affinity -}}
{{- $others := list -}}
{{- $before := true -}}
{{- range $root.Values.agent.groups -}}
{{- if eq .name $group.name -}}{{- $before = false -}}{{- end -}}
{{- if $before -}}
{{- range $key, $value := .nodeSelector -}}
{{- $others = append $others (dict "key" $key "operator" "NotIn" "values" (list $value)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $others -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms | default (list dict) -}}
{{- $terms = append $terms (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $others)) .) -}}
{{- end -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* What the chart itself decides of the agent's configuration. */}}
{{- define "drivebay.checkConfig" -}}
{{- $decided := dict
    "node" "the node's name is Kubernetes', the cluster is `clusterName`"
    "csi" "set `driverName`; the socket is where the pod has mounted it"
    "kubelet" "set `kubeletDir`"
    "agent" "its directories are where the pod has mounted them"
    "controller" "set `controller.port`, `certificates` and `agent.driveVerbs`"
    "probes" "set `controller.listenAddress`; the pod's probes ask there"
    "metrics" "set `metrics.enabled` and `metrics.agentPort`"
    "class" "set `classes`, or `classes` of a group in `agent.groups`" -}}
{{- $configs := dict "agent.config" .Values.agent.config -}}
{{- $names := dict -}}
{{- range .Values.agent.groups -}}
{{- if hasKey $names .name -}}{{- fail (printf "agent.groups: two are named %q" .name) -}}{{- end -}}
{{- $_ := set $names .name true -}}
{{- $_ := set $configs (printf "agent.groups, %s: config" .name) (.config | default dict) -}}
{{- end -}}
{{- range $where, $config := $configs -}}
{{- range $section, $_ := $config -}}
{{- if hasKey $decided $section -}}
{{- fail (printf "%s: [%s] is the chart's: %s" $where $section (get $decided $section)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
