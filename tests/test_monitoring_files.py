"""The files of Prometheus and Grafana, where each of these is a container."""

import pytest

from sunspot import monitoring


def test_a_server_that_is_a_container_replaces_the_loopback_address():
    text = (monitoring.FOLDER / "prometheus.yml").read_text()
    changed = monitoring.between_containers(text, {"eviction-metrics": "metrics"})
    assert "targets: [metrics:8081]" in changed
    assert "127.0.0.1" not in changed


def test_a_server_that_the_file_does_not_name_is_an_error():
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:3000"):
        monitoring.between_containers("url: http://127.0.0.1:9090", {"grafana": "grafana"})
