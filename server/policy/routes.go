package policy

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-mcp/countersign/approvals"
)

// Defaults of a route.
const (
	DefaultQuorum  = 1
	DefaultTimeout = 15 * time.Minute
)

// maxTimeout bounds how long a call may wait: what is kept is kept for longer.
const maxTimeout = 30 * 24 * time.Hour

// laterRoute are keys of a route that other releases read.
var laterRoute = []string{"next_after", "remind", "escalate_to", "reasons", "accept_unbound", "accept_unverified", "show", "scrub"}

var (
	routeName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	approver  = regexp.MustCompile(`^(slack-group:S[A-Z0-9]+|(group:)?[A-Za-z0-9_.@+-]+)$`)
	channel   = regexp.MustCompile(`^(slack:[CGD][A-Z0-9]+|ticket:` + approvals.SourcePattern + `|link:[A-Za-z0-9_.@+-]+)$`)
)

type routeTable struct {
	byName map[string]approvals.Route
	warns  []string
}

func (l *loader) routes(n *yaml.Node, t *routeTable) {
	l.mapping(n, "routes", func(k, v *yaml.Node) {
		if !routeName.MatchString(k.Value) {
			l.fail(k, "%s is not a route's name", k.Value)
			return
		}
		r := l.route(k, v)
		t.byName[k.Value] = r
		if len(r.Channels) == 0 {
			t.warns = append(t.warns, fmt.Sprintf("line %d: route %s has no channels, so nobody is told", k.Line, r.Name))
		}
	})
}

func (l *loader) route(k, v *yaml.Node) approvals.Route {
	r := approvals.Route{Name: k.Value, Quorum: DefaultQuorum, Timeout: DefaultTimeout}
	what := "the route " + k.Value
	l.keys(v, what, map[string]func(*yaml.Node){
		"approvers": func(n *yaml.Node) {
			r.Approvers = l.named(n, "approvers", approver, "ana, group:ops or slack-group:S0ONCALL")
		},
		"channels": func(n *yaml.Node) {
			r.Channels = l.named(n, "channels", channel, "slack:C… with the channel's id")
		},
		"quorum":          func(n *yaml.Node) { r.Quorum = l.whole(n, "quorum", 1) },
		"timeout":         func(n *yaml.Node) { r.Timeout = l.duration(n, "timeout") },
		"allow_requester": func(n *yaml.Node) { r.AllowRequester = l.flag(n, "allow_requester") },
		"links":           func(n *yaml.Node) { r.Links = l.oneOf(n, "links", "approve") },
		"run":             func(n *yaml.Node) { r.Run = l.oneOf(n, "run", "on_approve") },
		"on_cancel":       func(n *yaml.Node) { r.OnCancel = l.oneOf(n, "on_cancel", "withdraw") },
	}, laterRoute...)
	if len(r.Approvers) == 0 {
		l.fail(k, "%s has no approvers: nobody could ever say yes", what)
	}
	if people := onlyPeople(r.Approvers); people && len(r.Approvers) < r.Quorum {
		l.fail(k, "%s needs %d people and lists %d", what, r.Quorum, len(r.Approvers))
	}
	return r
}

func onlyPeople(approvers []string) bool {
	for _, a := range approvers {
		if strings.Contains(a, ":") {
			return false
		}
	}
	return true
}

func (l *loader) named(n *yaml.Node, what string, form *regexp.Regexp, examples string) []string {
	out := l.list(n, what)
	for _, c := range n.Content {
		if c.Kind == yaml.ScalarNode && c.Value != "" && !form.MatchString(c.Value) {
			l.fail(c, "%q can't stand in %s; write %s", c.Value, what, examples)
		}
	}
	return out
}

func (l *loader) duration(n *yaml.Node, what string) time.Duration {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if d, err := time.ParseDuration(n.Value); err == nil && d > 0 && d <= maxTimeout {
			return d
		}
	}
	l.fail(n, "%s is a duration such as 15m, up to 720h", what)
	return DefaultTimeout
}
