package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const vectorHead = "7bdeaab7b42985994d0a4fb02989b2671a60e8357780051fa7f8bbe599342504" // printed by make_vector.py

func vector(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/vector.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The vector was made by Python's json and hashlib. Its records, read back and
// chained anew by our own encoder, must give the same bytes.
func TestVector(t *testing.T) {
	want := vector(t)
	var recs []Record
	rep, err := Read(bytes.NewReader(want), func(r Record) error {
		recs = append(recs, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Report{Kind: OK, Records: 4, Head: vectorHead}, rep); diff != "" {
		t.Fatalf("report (-want +got):\n%s", diff)
	}
	if got := recs[1].RequestID; got != "\"a\u2028b \\ <&>\"" {
		t.Errorf("request id = %q", got)
	}
	var got []byte
	prev := Genesis
	for _, r := range recs {
		r.PrevSHA256, r.SHA256 = prev, ""
		got = appendLine(got, &r)
		prev = r.SHA256
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("bytes (-python +go):\n%s", diff)
	}
}

// fill sets every field to something that is not its zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 5, 1, 10, 0, 0, 7, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(7)
	default:
		panic("a field of a kind that the encoder does not know: " + v.Kind().String())
	}
}

// A field that someone adds to Record and forgets in the encoder would be
// missing from the ledger without a word.
func TestEveryFieldIsWritten(t *testing.T) {
	var r Record
	fill(reflect.ValueOf(&r).Elem())
	r.PrevSHA256 = Genesis
	line := appendLine(nil, &r)
	line = bytes.TrimSuffix(line, []byte("\n"))
	if _, err := new(parser).parse(line); err != nil {
		t.Fatalf("the line is not canonical: %v\n%s", err, line)
	}
	var back Record
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("a field is lost (-given +read):\n%s", diff)
	}
}

func TestCheckRefuses(t *testing.T) {
	decision := func(f func(*Record)) Record {
		r := Record{Event: Decision, OperationID: "op", Outcome: Allow}
		f(&r)
		return r
	}
	approval := func(f func(*Approval)) Record {
		a := &Approval{ID: "op", Votes: []Vote{{Verdict: "approve"}}}
		f(a)
		return Record{Event: ApprovalVote, Approval: a}
	}
	for name, row := range map[string]struct {
		rec   Record
		field string
	}{
		"no event":           {Record{}, "event"},
		"strange event":      {Record{Event: "approved_by_me"}, "event"},
		"opened by a caller": {Record{Event: Opened}, "event"},
		"decision, no id":    {Record{Event: Decision, Outcome: Allow}, "operation_id"},
		"start, no id":       {Record{Event: ExecStart}, "operation_id"},
		"no outcome":         {Record{Event: Decision, OperationID: "op"}, "outcome"},
		"strange outcome":    {decision(func(r *Record) { r.Outcome = "maybe" }), "outcome"},
		"attached to none":   {Record{Event: Attached, OperationID: "op"}, "to"},
		"no status":          {Record{Event: Result, OperationID: "op"}, "status"},
		"strange status":     {Record{Event: Result, OperationID: "op", Status: "fine"}, "status"},
		"newline in id":      {decision(func(r *Record) { r.RequestID = "a\nb" }), "request_id"},
		"ESC in tool":        {decision(func(r *Record) { r.Tool = "a\x1b[2Jb" }), "tool"},
		"C1 in session":      {decision(func(r *Record) { r.Session = "a\u0085b" }), "session"},
		"DEL in workflow":    {decision(func(r *Record) { r.Workflow = "a\x7f" }), "workflow"},
		"bad UTF-8":          {decision(func(r *Record) { r.Actor = "a\xff" }), "actor"},
		"long server":        {decision(func(r *Record) { r.Server = strings.Repeat("x", maxText+1) }), "server"},
		"prose as an error":  {decision(func(r *Record) { r.ErrorType = "cannot delete /etc/passwd" }), "error_type"},
		"prose as a reason":  {decision(func(r *Record) { r.Reason = "because I say so" }), "reason"},
		"quote in a digest":  {decision(func(r *Record) { r.ArgsDigest = `a"b` }), "args_digest"},
		"strange effect":     {decision(func(r *Record) { r.Rules = []Rule{{"a", "permit"}} }), "rules.effect"},
		"strange verdict":    {approval(func(a *Approval) { a.Votes[0].Verdict = "yes" }), "approval.votes.verdict"},
		"newline in person":  {approval(func(a *Approval) { a.Votes[0].Person = "a\nb" }), "approval.votes.person"},
		"strange state":      {approval(func(a *Approval) { a.State = "granted" }), "approval.state"},
		"approval, no id":    {approval(func(a *Approval) { a.ID = "" }), "approval.id"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *Invalid
			if err := row.rec.check(); !errors.As(err, &invalid) || invalid.Field != row.field {
				t.Errorf("check = %v, want field %s refused", err, row.field)
			}
		})
	}
	good := decision(func(r *Record) { r.RequestID = "\"a\u2028b\"" })
	if err := good.check(); err != nil {
		t.Errorf("U+2028 must be accepted: %v", err)
	}
}

// Whoever reads a ledger finds every event on the page.
func TestReadmeHasEveryEvent(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| event | when |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, e := range append([]Event{Opened}, events...) {
		if !strings.Contains(table, "`"+string(e)+"`") {
			t.Errorf("README.md has no line for %s", e)
		}
	}
}

func TestCleanMakesAnythingFit(t *testing.T) {
	for in, want := range map[string]string{
		"plain":      "plain",
		"a\nb":       "a⟦U+000A⟧b",
		"a\xffb":     "a⟦0xFF⟧b",
		"\u0085":     "⟦U+0085⟧",
		"a\u2028b":   "a\u2028b",
		"\ufffd":     "\ufffd",
		`"a\u0000b"`: `"a\u0000b"`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("é\x00", 1000)
	got := Clean(long)
	if len(got) > 512 || text("", got) != nil || !strings.HasSuffix(got, "of 3000 bytes)") {
		t.Errorf("Clean of a long text = %q (%d bytes)", got, len(got))
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\nb\xff")
	f.Fuzz(func(t *testing.T, s string) {
		r := Record{Event: Malformed, RequestID: Clean(s), PrevSHA256: Genesis}
		if err := r.check(); err != nil {
			t.Fatalf("Clean(%q) is refused: %v", s, err)
		}
		line := bytes.TrimSuffix(appendLine(nil, &r), []byte("\n"))
		if _, err := new(parser).parse(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var back Record
		if err := json.Unmarshal(line, &back); err != nil || back.RequestID != r.RequestID {
			t.Fatalf("%q came back as %q (%v)", r.RequestID, back.RequestID, err)
		}
	})
}

// What the strict parser accepts must be JSON with one reading only.
func FuzzParse(f *testing.F) {
	for l := range bytes.Lines(vector(f)) {
		f.Add(bytes.TrimSuffix(l, []byte("\n")))
	}
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"a":"\u0061"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := new(parser).parse(b); err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("accepted, and no JSON: %q", b)
		}
		var v map[string]any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		e := json.NewEncoder(&again)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		got := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(again.String(), "\n"))
		if got != string(b) && !strings.Contains(string(b), `\\u202`) {
			t.Fatalf("another writer gives\n%s\nfor\n%s", got, b)
		}
	})
}
