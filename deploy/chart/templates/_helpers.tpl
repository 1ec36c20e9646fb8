{{/* Begins the names of all objects. */}}
{{- define "drivebay.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "drivebay.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: {{ include "drivebay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: drivebay
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What selects the pods of a component; it never changes. Call with (list . "agent"). */}}
{{- define "drivebay.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "drivebay.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "drivebay.image" -}}
{{- $name := empty .Values.image.digest | ternary
    (printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion))
    (printf "%s@%s" .Values.image.repository .Values.image.digest) -}}
{{ include "drivebay.fromRegistry" (list . $name) }}
{{- end }}

{{/*
An image's name, at global.imageRegistry if that is set. As container engines do, what stands before the first slash is
taken for a registry if it has a dot or a colon. Called with (list . NAME).
*/}}
{{- define "drivebay.fromRegistry" -}}
{{- $name := index . 1 -}}
{{- with ((index . 0).Values.global | default dict).imageRegistry -}}
{{- $name = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $name "") -}}
{{- end -}}
{{ $name }}
{{- end }}

{{/* The name under which agents dial the controllers: a headless Service, so each replica's address. */}}
{{- define "drivebay.controllerHost" -}}
{{ include "drivebay.name" . }}-controller.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* host:port, also when the host is an IPv6 address. */}}
{{- define "drivebay.listen" -}}
{{ include "drivebay.anywhere" . }}:{{ .Values.controller.port }}
{{- end }}

{{/* The address at which a pod serves: 0.0.0.0, or [::] with IPv6; for controllers' agents, probes and metrics. */}}
{{- define "drivebay.anywhere" -}}
{{- $address := .Values.controller.listenAddress -}}
{{- if contains ":" $address -}}[{{ $address }}]{{- else -}}{{ $address }}{{- end -}}
{{- end }}

{{/* The Secret with the controller's certificate, and the one with the nodes' CA. */}}
{{- define "drivebay.controllerSecret" -}}
{{- if eq .Values.certificates.source "existing" -}}
{{ .Values.certificates.existing.controllerSecret }}
{{- else -}}
{{ include "drivebay.name" . }}-controller-tls
{{- end -}}
{{- end }}

{{/* The CA of the controller's certificate, where agents need nothing else. */}}
{{- define "drivebay.caConfigMap" -}}
{{- if eq .Values.certificates.source "existing" -}}
{{ .Values.certificates.existing.caConfigMap }}
{{- else -}}
{{ include "drivebay.name" . }}-controller-ca
{{- end -}}
{{- end }}

{{- define "drivebay.nodesCaSecret" -}}
{{- if eq .Values.certificates.source "existing" -}}
{{ .Values.certificates.existing.nodesCaSecret }}
{{- else -}}
{{ include "drivebay.name" . }}-nodes-ca
{{- end -}}
{{- end }}

{{/* A container that needs nothing but its socket and the network. */}}
{{- define "drivebay.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A container beside the agent: root, since the agent's socket is root's, and nothing else. */}}
{{- define "drivebay.besideAgent" -}}
{{ include "drivebay.unprivileged" . }}
runAsUser: 0
{{- with .Values.agent.sidecarSelinuxType }}
seLinuxOptions:
  type: {{ . }}
{{- end }}
{{- end }}

{{/* A sidecar that leads or waits: killed when it leads and cannot renew its lease. Call with the port's name. */}}
{{- define "drivebay.leaderProbe" -}}
httpGet:
  path: /healthz/leader-election
  port: {{ . }}
initialDelaySeconds: 10
periodSeconds: 20
timeoutSeconds: 10
failureThreshold: 3
{{- end }}

{{/* Options of the provisioner that do not depend on where it runs. */}}
{{- define "drivebay.provisionerArgs" -}}
- --csi-address=/csi/csi.sock
- --timeout={{ .Values.provisioner.timeout }}
- --extra-create-metadata=true
# The scheduler has chosen the node before the volume is made.
- --strict-topology=true
- --immediate-topology=false
# No --default-fstype: which filesystem is made when nobody names one is said by the class of drives.
- --enable-capacity=true
{{- end }}

{{- define "drivebay.provisionerEnv" -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{/* Not empty when the controller itself asks the API server something. */}}
{{- define "drivebay.asksApi" -}}
{{- if or (eq .Values.certificates.nodes "tokens") .Values.controller.kubernetes }}yes{{ end }}
{{- end }}

{{/* Whether the cluster has objects of drives. */}}

{{- define "drivebay.driveObjects" -}}
{{- if and .Values.controller.kubernetes (ne .Values.driveObjects "none") }}yes{{ end }}
{{- end }}

{{/* Whether operations on drives can be requested with objects. */}}

{{- define "drivebay.driveTasks" -}}
{{- if and (include "drivebay.driveObjects" .) .Values.driveTasks.enabled }}yes{{ end }}
{{- end }}

{{/* The token of the ServiceAccount, for those containers that ask the API. */}}

{{- define "drivebay.tokenVolume" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}

{{- define "drivebay.sidecarMounts" -}}
- name: socket
  mountPath: /csi
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{/*
The classes of nodes without a group, as JSON in "classes". The layout needs no device-mapper, which nodes that are containers
themselves may lack.
*/}}
{{- define "drivebay.classes" -}}
{{- $classes := .Values.classes -}}
{{- if .Values.trial.enabled -}}
{{- $path := printf "%s/drivebay-trial-*.img" .Values.trial.directory -}}
{{- $classes = list (dict "name" "trial" "layout" "partition" "select" (dict "path" (list $path))) -}}
{{- end -}}
{{ dict "classes" $classes | toJson }}
{{- end }}

{{/* The classes of all nodes, one of each name, as JSON in "classes". */}}
{{- define "drivebay.allClasses" -}}
{{- $seen := dict -}}
{{- $all := list -}}
{{- $lists := list (include "drivebay.classes" . | fromJson).classes -}}
{{- range .Values.agent.groups -}}{{- $lists = append $lists (.classes | default list) -}}{{- end -}}
{{- range $lists -}}
{{- range . -}}
{{- if not (hasKey $seen .name) -}}{{- $all = append $all . -}}{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}
{{ dict "classes" $all | toJson }}
{{- end }}

{{/* What Prometheus needs to see anything. */}}
{{- define "drivebay.checkMetrics" -}}
{{- range $value, $kind := dict "podMonitor" "PodMonitor" "prometheusRule" "PrometheusRule" -}}
{{- if (get $.Values.metrics $value).enabled -}}
{{- if not $.Values.metrics.enabled -}}
{{- fail (printf "metrics.%s.enabled needs metrics.enabled: without it no pod serves metrics on an address that Prometheus reaches" $value) -}}
{{- end -}}
{{- if not (or $.Values.metrics.assumeOperator ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) -}}
{{- fail (printf "metrics.%s.enabled needs the Prometheus operator, and this cluster does not know its kind %s. Install the operator's CRDs first, or leave this off; metrics.assumeOperator: true renders it all the same, e.g. where helm does not see the cluster" $value $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What snapshots need of the cluster, and which classes of them are refused. */}}
{{- define "drivebay.checkSnapshots" -}}
{{- $snapshots := .Values.snapshots -}}
{{- $groups := $snapshots.groups -}}
{{- if and $snapshots.classes (not $snapshots.enabled) -}}
{{- fail "snapshots.classes needs snapshots.enabled: without csi-snapshotter no snapshot of such a class is ever taken" -}}
{{- end -}}
{{- if and $groups.enabled (not $snapshots.enabled) -}}
{{- fail "snapshots.groups.enabled needs snapshots.enabled: csi-snapshotter takes both" -}}
{{- end -}}
{{- if and $groups.classes (not $groups.enabled) -}}
{{- fail "snapshots.groups.classes needs snapshots.groups.enabled: without it no group snapshot of such a class is ever taken" -}}
{{- end -}}
{{- if and $snapshots.enabled (not (or $snapshots.assumeApi (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1"))) -}}
{{- fail "snapshots.enabled needs snapshot.storage.k8s.io/v1, which this cluster does not have. Install the CRDs of kubernetes-csi/external-snapshotter (client/config/crd) and its snapshot-controller (deploy/kubernetes/snapshot-controller) first, once for all drivers, or leave this off; snapshots.assumeApi: true renders it all the same, e.g. where helm does not see the cluster" -}}
{{- end -}}
{{- if and $groups.enabled (not (or $snapshots.assumeApi (.Capabilities.APIVersions.Has "groupsnapshot.storage.k8s.io/v1"))) -}}
{{- fail "snapshots.groups.enabled needs groupsnapshot.storage.k8s.io/v1, which this cluster does not have. Install the CRDs of kubernetes-csi/external-snapshotter v8.6.0 or newer (client/config/crd) first, and run its snapshot-controller with --feature-gates=CSIVolumeGroupSnapshot=true, or leave this off; snapshots.assumeApi: true renders it all the same, e.g. where helm does not see the cluster" -}}
{{- end -}}
{{- range $where, $classes := dict "snapshots.classes" $snapshots.classes "snapshots.groups.classes" $groups.classes -}}
{{- $seen := dict -}}
{{- $defaults := list -}}
{{- range $classes -}}
{{- if hasKey $seen .name -}}{{- fail (printf "%s: two are named %q" $where .name) -}}{{- end -}}
{{- $_ := set $seen .name true -}}
{{- if .default -}}{{- $defaults = append $defaults .name -}}{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- fail (printf "%s: %s are all the default; a snapshot that names no class would be refused" $where (join ", " $defaults)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The generation of CSI's health calls that the cluster knows what to do with. Arguments: root, value. */}}
{{- define "drivebay.healthApi" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 -}}
{{- if ne $value "auto" -}}
{{- $value -}}
{{- else if semverCompare ">=1.37.0-0" $root.Capabilities.KubeVersion.Version -}}
both
{{- else -}}
legacy
{{- end -}}
{{- end }}

{{/*
A volume's topology is its node, so that the provisioner, which runs with --strict-topology, takes every node for one that is not
allowed by another key. Called with (list . CLASS).
*/}}
{{- define "drivebay.checkTopologies" -}}
{{- $class := index . 1 -}}
{{- $key := printf "%s/node" (index . 0).Values.driverName -}}
{{- range ($class.storageClass | default dict).allowedTopologies -}}
{{- range .matchLabelExpressions -}}
{{- if ne .key $key -}}
{{- fail (printf "class %q: allowedTopologies: the key is %s and no other, for a volume is of one node; with %s no volume would ever be made" $class.name $key .key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What values.schema.json cannot say. */}}
{{- define "drivebay.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: set it to where you put the image that deploy/Dockerfile or deploy/image makes, e.g. registry.example.net/storage/drivebay" -}}
{{- end -}}
{{- if and (eq .Values.certificates.nodes "host") (ne .Values.certificates.source "existing") -}}
{{- fail "certificates.nodes: host needs certificates.source: existing; whoever puts certificates on the hosts makes the controller's, too" -}}
{{- end -}}
{{- if and .Values.trial.enabled (or .Values.classes .Values.agent.groups) -}}
{{- fail "trial.enabled makes a class of its own, of drives made of files; it goes without classes and agent.groups" -}}
{{- end -}}
{{- include "drivebay.checkConfig" . -}}
{{- include "drivebay.checkMetrics" . -}}
{{- include "drivebay.checkSnapshots" . -}}
{{- $lists := dict "classes" .Values.classes -}}
{{- range .Values.agent.groups -}}
{{- $_ := set $lists (printf "agent.groups, %s: classes" .name) (.classes | default list) -}}
{{- end -}}
{{- range $where, $classes := $lists -}}
{{- $seen := dict -}}
{{- range $classes -}}
{{- if hasKey $seen .name -}}{{- fail (printf "%s: two are named %q" $where .name) -}}{{- end -}}
{{- include "drivebay.checkTopologies" (list $ .) -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}
{{- end }}
