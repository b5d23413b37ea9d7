{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* An image by its tag, by default the chart's appVersion, and its digest. */}}
{{- define "moult.image" -}}
{{ .image.repository | default (printf "%s/%s" .root.Values.registry .name) }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* A manifest of config, with the namespaces of this release. */}}
{{- define "moult.manifest" -}}
{{- .root.Files.Get .path | replace "namespace: moult-system" "namespace: @operator" | replace "namespace: system-upgrade" (printf "namespace: %s" .root.Values.namespaces.plans) | replace "namespace: @operator" (printf "namespace: %s" .root.Release.Namespace) }}
{{- end }}

{{/* The controllers that are switched on, with commas. */}}
{{- define "moult.controllers" -}}
{{- $all := list }}
{{- if .Values.plans.enabled }}{{ $all = append $all "plan" }}{{ end }}
{{- if .Values.extendedDaemonSets.enabled }}{{ $all = append $all "extendeddaemonset" }}{{ end }}
{{- if .Values.hostUpdate.enabled }}{{ $all = append $all "hostupdate" }}{{ end }}
{{- if .Values.replacement.enabled }}{{ $all = append $all "replacement" }}{{ end }}
{{- join "," $all | required "switch on one of plans, extendedDaemonSets, hostUpdate and replacement" }}
{{- end }}

{{/* The settings of the operator, as the data of a ConfigMap. */}}
{{- define "moult.settings" -}}
{{- toYaml (merge (dict) (.Values.settings | default dict) (dict "MOULT_CONTROLLERS" (include "moult.controllers" .))) }}
{{- end }}
