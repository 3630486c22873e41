{{/* The name of every object: the release's, followed by the chart's if it is not in it. 52 characters leave room for
what a StatefulSet appends; a Service has no dots in its name. */}}
{{- define "tidings.name" -}}
{{- $default := ternary .Release.Name (printf "%s-tidings" .Release.Name) (contains "tidings" .Release.Name) -}}
{{- .Values.fullnameOverride | default $default | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "tidings.selectorLabels" -}}
app.kubernetes.io/name: tidings
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{/* A role and its binding to the account of the Pod: (root, name, namespace, rules). Without a namespace they are of the
cluster. */}}
{{- define "tidings.role" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "tidings.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "tidings.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "tidings.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "tidings.image" -}}
{{- with .Values.image -}}
{{- if not .repository }}
{{- fail "expected image.repository, found none\nhint: no image is published yet. Build one with `make image`, push it to a registry of yours, and add --set image.repository=registry.example.com/tidings" }}
{{- end }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The configuration, and what of it the chart decides. */}}
{{- define "tidings.config" -}}
{{- $config := deepCopy (.Values.config | default dict) }}
{{- if ne (dig "journal" "path" "/var/lib/tidings" $config) "/var/lib/tidings" }}
{{- fail (printf "expected no config.journal.path, found %v\nhint: the volume is mounted at /var/lib/tidings, which is the default" $config.journal.path) }}
{{- end }}
{{- with dig "server" "listen" "" $config }}
{{- fail (printf "expected no config.server.listen, found %v\nhint: the Pod listens on [::]:8080, where its probes are" .) }}
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
