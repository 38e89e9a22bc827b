package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-mcp/countersign/approvals"
	"github.com/countersign-mcp/countersign/approvals/ledger"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server"
	"github.com/countersign-mcp/countersign/server/policy"
)

// Check judges a configuration as `countersign serve` would, without opening,
// contacting or starting anything. It returns the policy.
func Check(cfg *config.Config) (*policy.Set, error) {
	_, keyFault := ring(cfg)
	faults := []error{keyFault, server.CheckNames(cfg.MCP.AllowedHosts, cfg.MCP.AllowedOrigins)}
	r, err := readRules(cfg, reading{onlooker: true})
	faults = append(faults, err, r.checkListener())
	return r.policy, errors.Join(faults...)
}

// loadPolicy reads the configured policy and checks it against the rest of the
// configuration: every approver is somebody, every channel can be told. The text is
// returned also where it is no good policy.
func loadPolicy(cfg *config.Config, how reading) (*policy.Set, []byte, error) {
	path := cfg.PolicyPath()
	b, err := readPolicyFile(path, how)
	if err != nil {
		return nil, nil, err
	}
	set, err := parsePolicy(path, b, cfg, how.links)
	return set, b, err
}

func parsePolicy(path string, b []byte, cfg *config.Config, links bool) (*policy.Set, error) {
	set, err := policy.Parse(path, b)
	if err != nil {
		return nil, err
	}
	if err := set.Bind(slices.Sorted(maps.Keys(cfg.Upstreams))); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	roster, err := cfg.Roster()
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, r := range set.Routes() {
		faults = append(faults, checkApprovers(r, roster, cfg), checkChannels(r, roster, cfg, links))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// policyLoaded is the ledger's record of a policy that is in force from now on.
func policyLoaded(set *policy.Set) ledger.Record {
	r := ledger.Record{Event: ledger.PolicyLoaded, PolicyDigest: set.Digest().Hex()}
	if o := set.Observation(); len(o.Upstreams) > 0 {
		r.Observe = &ledger.Observe{Upstreams: o.Upstreams, Until: o.Until}
	}
	return r
}

func checkApprovers(r approvals.Route, roster *approvals.Roster, cfg *config.Config) error {
	for _, a := range r.Approvers {
		name, isGroup := strings.CutPrefix(a, "group:")
		switch {
		case isGroup:
			if _, ok := roster.Members(name); !ok {
				return fmt.Errorf("route %s: approver %s is not under groups", r.Name, a)
			}
		case strings.HasPrefix(a, "slack-group:"):
		default:
			if _, ok := roster.Person(a); !ok {
				return fmt.Errorf("route %s: approver %s is not under people", r.Name, a)
			}
		}
	}
	fromSlack := len(roster.SlackGroups(r.Approvers)) > 0
	if fromSlack && cfg.Slack == nil {
		return fmt.Errorf("route %s: its approvers are a Slack group, and slack is not configured", r.Name)
	}
	if n := people(r.Approvers, roster); !fromSlack && n < r.Quorum {
		return fmt.Errorf("route %s: quorum is %d, but no more than %d of its approvers can be different people", r.Name, r.Quorum, n)
	}
	return nil
}

// people counts the different people in a list of approvers, without those that
// only Slack knows.
func people(approvers []string, roster *approvals.Roster) int {
	all := map[string]bool{}
	for _, a := range approvers {
		name, isGroup := strings.CutPrefix(a, "group:")
		if !isGroup {
			all[a] = true
			continue
		}
		members, _ := roster.Members(name)
		for _, m := range members {
			all[m] = true
		}
	}
	return len(all)
}

func checkChannels(r approvals.Route, roster *approvals.Roster, cfg *config.Config, links bool) error {
	if len(r.Channels) == 0 {
		return fmt.Errorf("route %s: has no channels, so nobody would be told", r.Name)
	}
	for _, c := range r.Channels {
		kind, name, _ := strings.Cut(c, ":")
		switch kind {
		case "slack":
			if cfg.Slack == nil {
				return fmt.Errorf("route %s: channel %s needs slack to be configured", r.Name, c)
			}
		case "link":
			if _, ok := roster.Person(name); !ok {
				return fmt.Errorf("route %s: channel %s: %s is not under people", r.Name, c, name)
			}
			if !links {
				return fmt.Errorf("route %s: channel %s: links are handed out by the demo only in this release; write slack:C…", r.Name, c)
			}
		default:
			return fmt.Errorf("route %s: channel %s is not in this release; write slack:C…", r.Name, c)
		}
	}
	return nil
}

// approversOf lists the approvers of all routes, each once.
func approversOf(set *policy.Set) []string {
	var out []string
	for _, r := range set.Routes() {
		out = append(out, r.Approvers...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
