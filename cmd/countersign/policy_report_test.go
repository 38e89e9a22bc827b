package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

// reported writes one ledger file: observed, asked, joined and refused calls, one
// with a name that would draw on a terminal.
func reported(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	now := time.Date(2026, 12, 1, 23, 30, 0, 0, time.UTC)
	l, err := ledger.Open(dir, ledger.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	review := []ledger.Rule{{ID: "tier:destructive", Effect: ledger.Review}}
	decision := ledger.Record{Event: ledger.Decision, Actor: "ana@acme.test", Person: "ana", Server: "desk", Tool: "cancel", Rules: review}
	observed := decision
	observed.OperationID, observed.Outcome, observed.Observed, observed.Routes = "1", ledger.Allow, true, []ledger.Route{{Name: "default", Quorum: 1}}
	asked := decision
	asked.OperationID, asked.Outcome = "2", ledger.Review
	again := asked
	again.OperationID = "3"
	hostile := decision
	hostile.OperationID, hostile.Outcome, hostile.Reason = "4", ledger.Deny, "unknown_tool"
	hostile.Person, hostile.Server, hostile.Tool, hostile.Actor, hostile.Rules = "", "", ledger.Clean("\x1b[2Jrm\u202e_rf"), ledger.Clean("bot\nasked 99"), nil
	for _, r := range []ledger.Record{
		{Event: ledger.PolicyLoaded, PolicyDigest: "abc", Observe: &ledger.Observe{Upstreams: []string{"desk"}, Until: now.Add(time.Hour)}},
		observed, asked, again, {Event: ledger.Attached, OperationID: "3", To: "2"}, hostile,
	} {
		if _, err := l.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Minute)
	}
	path := l.Path()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func report(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e strings.Builder
	code = run(t.Context(), append([]string{"policy", "report"}, args...), terminal{in: strings.NewReader(""), out: &o, err: &e})
	return o.String(), e.String(), code
}

func TestPolicyReport(t *testing.T) {
	path := reported(t)
	out, errs, code := report(t, path)
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	_, rest, ok := strings.Cut(out, "\n")
	if !ok || !strings.HasPrefix(out, path+": ok, 7 records") {
		t.Fatalf("it does not say first that the file holds:\n%s", out)
	}
	const want = `A policy observed desk until 2026-12-02 00:30.
Calls from 2026-12-01 23:40 to 2026-12-02 00:20 (UTC), under 1 policy.
Most questions in one hour: 2 (2026-12-01 23:00).

                                          calls  allowed  would ask  would refuse  asked  joined  refused
in all                                    4      0        1          0             1      1       1

by tool
  desk/cancel                             3      0        1          0             1      1       0
  ⟦U+27E6⟧U+001B⟦U+27E7⟧[2Jrm⟦U+202E⟧_rf  1      0        0          0             0      0       1

by person
  ana                                     3      0        1          0             1      1       0
  bot⟦U+27E6⟧U+000A⟦U+27E7⟧asked 99       1      0        0          0             0      0       1

by hour of the day
  00:00                                   2      0        0          0             0      1       1
  23:00                                   2      0        1          0             1      0       0

by rule
  tier:destructive                        3      0        1          0             1      1       0

refused because  calls  of them ran, observed
  unknown_tool   1      0
`
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyReportAsJSON(t *testing.T) {
	path := reported(t)
	out, _, code := report(t, "--json", "--from", "2026-12-02", "--zone", "Etc/GMT-2", path)
	if code != exitOK {
		t.Fatalf("exit %d", code)
	}
	var got struct {
		Files []ledger.Report
		Total struct {
			WouldAsk int `json:"would_ask"`
			Asked    int
		}
		Hours []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	// That zone's day begins at 22:00 UTC.
	if len(got.Files) != 1 || got.Total.WouldAsk != 1 || got.Total.Asked != 1 || len(got.Hours) != 2 || got.Hours[0].Name != "01:00" {
		t.Errorf("%+v", got)
	}
	out, _, _ = report(t, "--to", "2026-12-01T23:40:00Z", path)
	if !strings.Contains(out, "No call was decided in this time.") {
		t.Error(out)
	}
}

// A file that was changed is said to be, and counted up to there.
func TestPolicyReportOfAChangedFile(t *testing.T) {
	path := reported(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "changed.jsonl")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(b), `"outcome":"review"`, `"outcome":"allow"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, code := report(t, changed)
	if code != 1 || !strings.Contains(out, "tampered") || !strings.Contains(out, "in all") || strings.Contains(out, "joined 1") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if err := os.WriteFile(changed, b[:len(b)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := report(t, changed); code != 3 || !strings.Contains(out, "torn") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestPolicyReportUsage(t *testing.T) {
	path := reported(t)
	for says, args := range map[string][]string{
		"there is no":          {filepath.Join(t.TempDir(), "none.jsonl")},
		"no ledger file in":    {t.TempDir()},
		"--zone Mars":          {"--zone", "Mars", path},
		`--from "yesterday"`:   {"--from", "yesterday", path},
		"--from is not before": {"--from", "2026-12-02", "--to", "2026-12-02", path},
		"FILE":                 {},
	} {
		if out, errs, code := report(t, args...); code != exitUsage || !strings.Contains(errs, says) || out != "" {
			t.Errorf("%v: exit %d, %s%s", args, code, out, errs)
		}
	}
}
