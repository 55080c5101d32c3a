module sunspot/compose/grafana

go 1.26

require github.com/grafana/grafana v1.9.2-0.20230609164553-81d85ce8028d
