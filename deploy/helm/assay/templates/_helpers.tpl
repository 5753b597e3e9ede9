{{- /* The name of the Service too, so without dots and beginning with a letter; a hash keeps long ones apart. */ -}}
{{- define "assay.name" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "assay-%s" $name }}
{{- else if not (contains "assay" $name) }}{{ $name = printf "%s-assay" $name }}{{ end }}
{{- if gt (len $name) 40 }}{{ $name = printf "%s-%s" ($name | trunc 31 | trimSuffix "-") (sha256sum $name | trunc 8) }}{{ end }}
{{- $name }}
{{- end }}

{{- define "assay.labels" -}}
app.kubernetes.io/name: assay
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "assay.selector" -}}
app.kubernetes.io/name: assay
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "assay.image" -}}
{{- $digest := index .root.Values.image.digests .component -}}
{{- $version := .root.Values.image.tag | default .root.Chart.AppVersion | printf ":%s" -}}
{{ .root.Values.image.registry }}/assay-{{ .component }}{{ ternary (printf "@%s" $digest) $version (ne $digest "") }}
{{- end }}

{{- define "assay.host" -}}
{{ include "assay.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "assay.joinSecret" -}}
{{ .Values.agents.joinSecret | default (printf "%s-join" (include "assay.name" .)) }}
{{- end }}

{{- define "assay.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "assay.serverSettings" -}}
{{- $own := dict
      "state" "/var/lib/assay-server"
      "listen" (list "unix:/run/assay-server/server.sock" "0.0.0.0:7170")
      "join" (list "0.0.0.0:7171")
      "advertise_join" (.Values.server.service.advertiseJoin | default (printf "%s:7171" (include "assay.host" .))) }}
{{- if eq .Values.database.kind "postgresql" }}{{ $_ := set $own "database" .Values.database.url }}{{ end }}
{{- if eq .Values.records.kind "volume" }}{{ $_ := set $own "records" "/var/lib/assay-records" }}{{ end }}
{{- if eq .Values.records.kind "s3" }}
{{- $_ := set $own "records" .Values.records.s3.url }}
{{- with .Values.records.s3.endpoint }}{{ $_ := set $own "records_endpoint" . }}{{ end }}
{{- end }}
{{- with .Values.analysis.scheduler }}{{ $_ := set $own "analysis" . }}{{ end }}
{{- if .Values.analysis.certificateSecret }}
{{- $_ := set $own "analysis_ca" "/etc/assay/analysis/ca.crt" }}
{{- $_ := set $own "analysis_certificate" "/etc/assay/analysis/tls.crt" }}
{{- $_ := set $own "analysis_key" "/etc/assay/analysis/tls.key" }}
{{- end }}
{{- if .Values.metrics.certificateSecret }}
{{- $_ := set $own "metrics" "0.0.0.0:9470" }}
{{- $_ := set $own "metrics_certificate" "/etc/assay/metrics/tls.crt" }}
{{- $_ := set $own "metrics_key" "/etc/assay/metrics/tls.key" }}
{{- $_ := set $own "metrics_readers" "/etc/assay/metrics/ca.crt" }}
{{- end }}
{{- if .Values.server.web.enabled }}
{{- $_ := set $own "web" "0.0.0.0:7180" }}
{{- $_ := set $own "web_name" (append .Values.server.web.names (include "assay.host" .)) }}
{{- if .Values.server.web.certificateSecret }}
{{- $_ := set $own "web_certificate" "/etc/assay/web/tls.crt" }}
{{- $_ := set $own "web_key" "/etc/assay/web/tls.key" }}
{{- end }}
{{- end }}
{{- toToml (merge $own .Values.server.settings) }}
{{- end }}

{{- define "assay.agentSettings" -}}
{{- $own := dict
      "state" "/var/lib/assay-agent"
      "policy" "/etc/assay/policy.toml"
      "drain" (printf "%ds" (int .Values.agents.drainSeconds))
      "metrics" "127.0.0.1:9471" }}
{{- if .Values.agents.virtual }}
{{- $_ := set $own "virtual" .Values.agents.virtual }}
{{- $_ := set $own "installed_gpus" "false" }}
{{- end }}
{{- if .Values.metrics.certificateSecret }}
{{- $_ := set $own "metrics" "0.0.0.0:9471" }}
{{- $_ := set $own "metrics_certificate" "/etc/assay/metrics/tls.crt" }}
{{- $_ := set $own "metrics_key" "/etc/assay/metrics/tls.key" }}
{{- $_ := set $own "metrics_readers" "/etc/assay/metrics/ca.crt" }}
{{- end }}
{{- toToml (merge $own .Values.agents.settings) }}
{{- end }}

{{/* A probe's command: whether a server answers, active or not. */}}
{{- define "assay.alive" -}}
[/bin/sh, -c, "/opt/assay/bin/assay-server health unix:/run/assay-server/server.sock; code=$?; test $code -eq 0 || test $code -eq 10"]
{{- end }}
