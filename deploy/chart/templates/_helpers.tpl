{{/* The name of every object: the release's, followed by the chart's if it is not in it. 52 characters leave room for
what a StatefulSet appends; the name of a Service begins with a letter and has no dots. */}}
{{- define "tidings.name" -}}
{{- $default := ternary .Release.Name (printf "%s-tidings" .Release.Name) (contains "tidings" .Release.Name) -}}
{{- $default = ternary (printf "tidings-%s" .Release.Name) $default (regexMatch "^[0-9]" .Release.Name) -}}
{{- .Values.fullnameOverride | default $default | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "tidings.selectorLabels" -}}
app.kubernetes.io/name: tidings
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "tidings.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "tidings.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "tidings.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "tidings.name" .) }}
{{- end }}

{{/* The namespaces whose Events are read: one that is empty stands for all. */}}
{{- define "tidings.namespaces" -}}
{{- toJson (ternary (include "tidings.config" . | fromYaml | dig "source" "namespaces" list) (list "") .Values.namespaced) -}}
{{- end }}

{{/* A role and its binding to the account of the Pod: (root, of, namespace, rules). Without a namespace they are of the
cluster. Releases of one name in several namespaces have roles of their own. */}}
{{- define "tidings.role" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $name := printf "%s-%s-%s" .root.Release.Namespace (include "tidings.name" .root) .of -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "tidings.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "tidings.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "tidings.serviceAccount" .root | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end }}

{{- define "tidings.image" -}}
{{- with .Values.image -}}
{{- if not .repository }}
{{- fail "expected image.repository, found none\nhint: no image is published yet. Build one with `make image`, push it to a registry of yours, and add --set image.repository=registry.example.com/tidings" }}
{{- end }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A size of Kubernetes (2Gi) or of the configuration (1GiB) in bytes. */}}
{{- define "tidings.bytes" -}}
{{- if kindIs "string" . }}
{{- $factors := dict "" 1 "k" 1e3 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[kKMGT]i?" .)) }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}

{{/* The configuration, and what of it the chart decides. */}}
{{- define "tidings.config" -}}
{{- $config := deepCopy (.Values.config | default dict) }}
{{- if ne (dig "journal" "path" "/var/lib/tidings" $config | toString) "/var/lib/tidings" }}
{{- fail (printf "expected no config.journal.path, found %v\nhint: the volume is mounted at /var/lib/tidings, which is the default" $config.journal.path) }}
{{- end }}
{{- with dig "server" "listen" "" $config }}
{{- fail (printf "expected no config.server.listen, found %v\nhint: the Pod listens on [::]:8080, where its probes are" .) }}
{{- end }}
{{- $retention := dig "journal" "retention" "size" "1GiB" $config }}
{{- if ge (include "tidings.bytes" $retention | float64) (include "tidings.bytes" .Values.persistence.size | float64) }}
{{- fail (printf "expected config.journal.retention.size below persistence.size, found %v and %v\nhint: the volume holds the state beside the log, too: raise persistence.size" $retention .Values.persistence.size) }}
{{- end }}
{{- if and .Values.namespaced (not (dig "source" "namespaces" list $config)) }}
{{- fail "expected config.source.namespaces with namespaced, found none\nhint: name the namespaces whose Events are read" }}
{{- end }}
{{- if not $config.sinks }}
{{- $_ := set $config "sinks" (dict "events" (dict "stdout" dict)) }}
{{- end }}
{{- $_ := set $config "log" (merge ($config.log | default dict) (dict "format" "json")) }}
{{- toYaml $config }}
{{- end }}
