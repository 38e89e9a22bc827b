package policy

import (
	"slices"
	"strings"
	"testing"
)

const labelRoutes = `
routes:
  default: {channels: [slack:C0APPROVALS], approvers: [group:ops]}
`

func TestProducesAndTrustedLabelers(t *testing.T) {
	set, err := Parse("p.yaml", []byte(`version: 2
provenance: {trusted_labelers: [planner@acme.test]}
tools:
  web/*: {tier: read, produces: retrieved}
  web/ask_model: {tier: read, produces: [retrieved, model]}
  web/time: read
  mail/send: write
rules:
  - {id: r, effect: review, tools: [mail/*], when: 'labels("").exists(l, l in ["session:retrieved", "unknown"])', reason: x}
`+labelRoutes))
	if err != nil {
		t.Fatal(err)
	}
	if !set.UsesLabels() || len(set.Warnings()) > 0 {
		t.Errorf("uses labels %v, warnings %v", set.UsesLabels(), set.Warnings())
	}
	for tool, want := range map[string][]string{
		"fetch": {"retrieved"}, "ask_model": {"retrieved", "model"}, "time": nil, "Ask_model": {"retrieved"},
	} {
		if got := set.Produces("web", tool); !slices.Equal(got, want) {
			t.Errorf("%s produces %v, want %v", tool, got, want)
		}
	}
	if got := set.Produces("mail", "other"); got != nil {
		t.Errorf("an unlisted tool produces %v", got)
	}
	got := set.Produces("web", "fetch")
	got[0] = "user"
	if set.Produces("web", "fetch")[0] != "retrieved" {
		t.Error("what it hands out is its own")
	}
	for actor, want := range map[string]bool{"planner@acme.test": true, "Planner@acme.test": false, "": false, "ana@acme.test": false} {
		if set.TrustsLabels(actor) != want {
			t.Errorf("%q is trusted: %v", actor, !want)
		}
	}
	var none *Set
	if none.UsesLabels() || none.TrustsLabels("x") || none.Produces("a", "b") != nil {
		t.Error("no policy knows labels")
	}
}

// What asks for labels, in whatever part of a condition, is known before any call.
func TestWhoUsesLabels(t *testing.T) {
	for text, want := range map[string]bool{
		"tools: {a/b: read}":                          false,
		"tools: {a/b: {tier: read, produces: model}}": true,
		"tools: {a/b: read}\nrules: [{id: r, effect: deny, when: 'args.x == 1', reason: x}]":                                               false,
		"tools: {a/b: read}\nrules: [{id: r, effect: deny, when: 'args.labels == 1', reason: x}]":                                          false,
		"tools: {a/b: read}\nrules: [{id: r, effect: deny, when: 'args.x == 1 && [\"/a\"].exists(p, \"model\" in labels(p))', reason: x}]": true,
		"tools: {a/b: read}\nprovenance: {trusted_labelers: [x]}":                                                                          false,
	} {
		set, err := Parse("p.yaml", []byte("version: 2\n"+text+labelRoutes))
		if err != nil {
			t.Fatal(err)
		}
		if set.UsesLabels() != want {
			t.Errorf("%s: uses labels: %v", text, !want)
		}
		if asks := strings.Contains(text, "labels("); len(set.Warnings()) > 0 != (!asks && (want || strings.Contains(text, "provenance"))) {
			t.Errorf("%s: warnings %v", text, set.Warnings())
		}
	}
	one, err := Parse("p.json", []byte(`{"version":1,"allow":["x"]}`))
	if err != nil || one.UsesLabels() {
		t.Errorf("version 1: %v, %v", err, one)
	}
}

func TestBadProvenance(t *testing.T) {
	for text, want := range map[string]string{
		"tools: {a/b: {tier: read, produces: user}}":                   "a label that a tool produces is retrieved, model",
		"tools: {a/b: {tier: read, produces: [retrieved, system]}}":    "a label that a tool produces is retrieved, model",
		"tools: {a/b: {tier: read, produces: [retrieved, retrieved]}}": "stands twice",
		"tools: {a/b: {tier: read, produces: []}}":                     "produces is retrieved",
		"tools: {a/b: {tier: read, produces: true}}":                   "is a string",
		"tools: {a/b: {tier: read, produces: {a: b}}}":                 "is a string",
		"tools: {a/b: {tier: deny, produces: retrieved}}":              "nothing else of it has a meaning",
		"tools: {a/b: read}\nprovenance: [x]":                          "provenance is a mapping",
		"tools: {a/b: read}\nprovenance: {trusted: [x]}":               "trusted is not a key of provenance",
		"tools: {a/b: read}\nprovenance: {trusted_labelers: x}":        "is a list",
		"tools: {a/b: read}\nprovenance: {trusted_labelers: [1]}":      "is a string",
	} {
		_, err := Parse("p.yaml", []byte("version: 2\n"+text+labelRoutes))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
