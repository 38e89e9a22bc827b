package store

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/store/redistest"
)

// An account that can't run all of a script is refused before it runs the half of
// one.
func TestAccountsThatAreRefused(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client()
	grant := func(t *testing.T, rules ...any) {
		t.Helper()
		all := append([]any{"acl", "setuser", "clerk", "reset", "on", ">pw"}, rules...)
		if err := admin.Do(t.Context(), all...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(o *Options) { o.URL = "unix://clerk:pw@" + srv.Addr }
	for name, tt := range map[string]struct {
		rules  []any
		reason string
	}{
		"no channel":    {[]any{"~*", "+@all"}, "PUBLISH"},
		"no publish":    {[]any{"~*", "&*", "+@all", "-publish"}, "PUBLISH"},
		"no stream":     {[]any{"~*", "&*", "+@all", "-xadd"}, "XADD"},
		"no sorted set": {[]any{"~*", "&*", "+@all", "-zadd"}, "ZADD"},
		"no clock":      {[]any{"~*", "&*", "+@all", "-time"}, "TIME"},
		"no deletion":   {[]any{"~*", "&*", "+@all", "-hdel"}, "HDEL"},
		"no scripts":    {[]any{"~*", "&*", "+@all", "-eval", "-evalsha"}, "scripts"},
		"other keys":    {[]any{"~other*", "&*", "+@all"}, "may not"},
	} {
		t.Run(name, func(t *testing.T) {
			grant(t, tt.rules...)
			p := own(t, srv, as)
			err := p.Check(t.Context())
			var r *Refusal
			if !errors.As(err, &r) || !strings.Contains(r.Reason, tt.reason) {
				t.Fatalf("not refused for %s: %v", tt.reason, err)
			}
			if _, _, err := p.Park(t.Context(), request(`1`)); !errors.As(err, &r) {
				t.Errorf("Park: %v", err)
			}
			if keys := admin.Keys(t.Context(), "*").Val(); len(keys) != 0 {
				t.Errorf("it left %v", keys)
			}
		})
	}
	grant(t, "~*", "&*", "+@all")
	p := own(t, srv, as)
	if err := p.Check(t.Context()); err != nil {
		t.Errorf("refused although it may do all: %v", err)
	}
	if n := admin.Exists(t.Context(), p.k.rights()).Val(); n != 0 {
		t.Error("the try left its key behind")
	}
}

// Every command of every script is tried.
func TestRightsCoverTheScripts(t *testing.T) {
	spared := map[string]bool{ // only to forget consumers that are gone: nothing is lost without it
		"XGROUP": true, "XINFO": true,
	}
	tried := source("rights")
	entries, err := sources.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	seen := 0
	for _, e := range entries {
		for _, m := range call.FindAllStringSubmatch(source(strings.TrimSuffix(e.Name(), ".lua")), -1) {
			seen++
			if !spared[m[1]] && !strings.Contains(tried, "try('"+m[1]+"'") {
				t.Errorf("%s runs %s, which is not tried", e.Name(), m[1])
			}
		}
	}
	if seen < 50 {
		t.Fatalf("only %d commands were found in the scripts", seen)
	}
}
