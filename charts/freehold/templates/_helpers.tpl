{{- /* An image by digest, or by tag, or by the chart's version. Called with (list $ image). */ -}}
{{- define "freehold.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (printf "v%s" $root.Chart.AppVersion)) -}}
{{- end -}}
{{- end -}}
