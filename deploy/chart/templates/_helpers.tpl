{{/* The name of every object: the release's, with the chart's if it is not in it. 52 characters leave room for what a
StatefulSet appends. */}}
{{- define "tidings.name" -}}
{{- $default := ternary .Release.Name (printf "%s-tidings" .Release.Name) (contains "tidings" .Release.Name) -}}
{{- .Values.fullnameOverride | default $default | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "tidings.selectorLabels" -}}
app.kubernetes.io/name: tidings
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidings.labels" -}}
{{ include "tidings.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "tidings.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "tidings.name" .) }}
{{- end }}

{{- define "tidings.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "tidings.serviceAccount" . }}
    namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "tidings.image" -}}
{{- with .Values.image -}}
{{- if not .repository }}
{{- fail "image.repository is not set: no image is published yet. Build one with `make image`, push it to a registry of yours, and name it with --set image.repository=registry.example.com/tidings" }}
{{- end }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The configuration, and what of it the chart decides. */}}
{{- define "tidings.config" -}}
{{- $config := deepCopy .Values.config }}
{{- if ne (dig "journal" "path" "/var/lib/tidings" $config) "/var/lib/tidings" }}
{{- fail "config.journal.path is the mount of the volume, /var/lib/tidings: leave it out" }}
{{- end }}
{{- if dig "server" "listen" "" $config }}
{{- fail "config.server.listen is [::]:8080, where the probes are: leave it out" }}
{{- end }}
{{- if and .Values.namespaced (not (dig "source" "namespaces" list $config)) }}
{{- fail "namespaced needs the namespaces to watch: set config.source.namespaces" }}
{{- end }}
{{- if not $config.sinks }}
{{- $_ := set $config "sinks" (dict "events" (dict "stdout" dict)) }}
{{- end }}
{{- $_ := set $config "log" (merge (default dict $config.log) (dict "format" "json")) }}
{{- toYaml $config }}
{{- end }}
