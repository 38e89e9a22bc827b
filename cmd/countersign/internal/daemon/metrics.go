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
	reloads  *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "countersign_webhook_requests_total",
			Help: "Requests to the webhook and admin listeners, by route and by how they ended.",
		}, []string{"route", "outcome"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "countersign_policy_reloads_total",
			Help: "Reloads of the configuration since the start, by how they ended: loaded, or rejected and everything as it was.",
		}, []string{"outcome"}),
	}
	m.reloads.WithLabelValues(reloadLoaded) // told from the start, as 0
	m.reloads.WithLabelValues(reloadRejected)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "countersign_build_info",
		Help: "Always 1; the labels say what is running.",
	}, []string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.requests, m.reloads, build)
	return m
}

// follow tells of the newest policy and of ours.
func (m *metrics) follow(g *generations) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("countersign_policy_generation", "The number of the newest policy that any process has loaded; 0 while it is not known.", func() float64 {
		n, _ := g.state()
		return float64(n)
	})
	gauge("countersign_policy_behind", "1 while another process has loaded another policy since, and this one refuses calls that need a yes.", func() float64 {
		if _, behind := g.state(); behind {
			return 1
		}
		return 0
	})
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
