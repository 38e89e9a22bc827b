package daemon

import (
	"net/http"
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is what /metrics tells. Labels come from closed sets: no argument, no
// id and no name of anybody is ever one.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "countersign_webhook_requests_total",
			Help: "Requests to the webhook and admin listeners, by route and by how they ended.",
		}, []string{"route", "outcome"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "countersign_build_info",
		Help: "Always 1; the labels say what is running.",
	}, []string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.requests, build)
	return m
}

// A label that is no word of a closed set would be a leak, or grow without end.
var labelWord = regexp.MustCompile(`^[a-z]+([_-][a-z]+){0,3}$`)

func (m *metrics) observe(route, outcome string) {
	m.requests.WithLabelValues(label(route), label(outcome)).Inc()
}

func label(s string) string {
	if len(s) > 32 || !labelWord.MatchString(s) {
		return "other"
	}
	return s
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
