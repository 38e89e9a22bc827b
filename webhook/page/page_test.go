package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func sample() Approval {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	return Approval{
		Title: "Cancel order 1042", Who: "ana@acme.test (ana)", Server: "orders", Tool: "cancel_order", Tier: "destructive",
		Why: []string{"tier:destructive", "rule big-orders: more than 1000 EUR"}, Deadline: now.Add(14 * time.Minute), Now: now,
		Text:   "{\n  \"order\": 1042,\n  \"note\": \"" + strings.Repeat("longword", 30) + "\",\n  \"token\": \"⟨masked⟩\"\n}",
		Masked: []Mask{{"/token", "string", 22, "aZ09-_aZ09-_"}}, Warnings: []string{"2 invisible characters are shown as ⟦U+202E⟧"},
		Needed: []string{"route default: 1 of 2 have approved"},
		Form:   &Form{Nonce: "n", MayApprove: true},
	}
}

func draw(t *testing.T, a Approval) string {
	t.Helper()
	b, err := Render(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The policy allows exactly the style that is on the page: one changed byte and
// the browser would drop it.
func TestPolicyAllowsTheStyle(t *testing.T) {
	msg, err := Message("Nothing here", "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, html := range []string{draw(t, sample()), string(msg)} {
		m := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(html, -1)
		if len(m) != 1 {
			t.Fatalf("%d style elements", len(m))
		}
		sum := sha256.Sum256([]byte(m[0][1]))
		if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(Policy, want) {
			t.Fatalf("%s is not in %s", want, Policy)
		}
		for _, bad := range []string{"<script", " style=", " on", "http:", "https:", "javascript:", "src=", "url(", "@import"} {
			if strings.Contains(strings.ToLower(strings.ReplaceAll(html, m[0][1], "")), bad) && bad != " on" {
				t.Errorf("the page holds %q", bad)
			}
		}
		if regexp.MustCompile(`\son[a-z]+=`).MatchString(html) {
			t.Error("the page holds an event handler")
		}
	}
}

func TestPageStructure(t *testing.T) {
	html := draw(t, sample())
	for _, want := range []string{
		`<html lang="en">`, `<meta name="viewport" content="width=device-width, initial-scale=1">`, "<main>", "<title>Approval request</title>",
		`<label class="field" for="reason">`, `<textarea id="reason" name="reason"`, `<label class="check" for="confirm">`,
		`<input type="checkbox" id="confirm" name="confirm" value="read" required>`, "I have read the arguments above",
		`<button class="approve" type="submit" name="decision" value="approve">Approve</button>`,
		`<button class="deny" type="submit" name="decision" value="deny" formnovalidate>Deny</button>`,
		`<form method="post"`, `<time datetime="2026-11-30T09:14:00Z">2026-11-30 09:14 UTC</time>, in 14 minutes`,
		"This is the whole call. If it is approved, exactly this runs, once.", "<code>/token</code>: string, 22 bytes, digest <code>aZ09-_aZ09-_</code>", "Look twice", "1 of 2 have approved",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(html, "<h1"); n != 1 {
		t.Errorf("%d h1", n)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]] {
			t.Errorf("id %s twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?: for| aria-labelledby| aria-describedby)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if !ids[m[1]] {
			t.Errorf("%s names nothing", m[0])
		}
	}
	if strings.Index(html, ">Approve</button>") > strings.Index(html, ">Deny</button>") {
		t.Error("Deny comes first")
	}
}

func TestPageVariants(t *testing.T) {
	a := sample()
	a.Missing = []string{"900 bytes of /body"}
	a.Form = &Form{Nonce: "n", WhyNot: "A link alone can't approve this."}
	html := draw(t, a)
	for _, want := range []string{"This is not the whole.", "900 bytes of /body", "A link alone can&#39;t approve this."} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, bad := range []string{"exactly this runs", `value="approve"`, `name="confirm"`} {
		if strings.Contains(html, bad) {
			t.Errorf("an incomplete page holds %s", bad)
		}
	}
	a = sample()
	a.Form.Unticked, a.Form.Reason = true, "typed"
	html = draw(t, a)
	for _, want := range []string{`aria-invalid="true" aria-describedby="unticked"`, `id="unticked" role="alert"`, ">typed</textarea>"} {
		if !strings.Contains(html, want) {
			t.Errorf("no %s", want)
		}
	}
	a.Form, a.Status = nil, "It was denied by bob and will not run."
	html = draw(t, a)
	if strings.Contains(html, "<form") || strings.Contains(html, "Answer until") || !strings.Contains(html, `role="status">It was denied by bob`) {
		t.Error(html)
	}
}

func TestEverythingIsEscaped(t *testing.T) {
	evil := `</style></pre><script>x</script>"'><b>`
	a := Approval{Title: evil, Who: evil, Server: evil, Tool: evil, Tier: evil, Why: []string{evil}, Text: evil,
		Masked: []Mask{{evil, evil, 1, evil}}, Warnings: []string{evil}, Missing: []string{evil}, Needed: []string{evil},
		Form: &Form{Nonce: evil, WhyNot: evil, Reason: evil}, Status: evil, Notice: evil}
	if html := draw(t, a); strings.Contains(html, "<script>") || strings.Contains(html, "<b>") {
		t.Fatal(html)
	}
	b, err := Message(evil, evil)
	if err != nil || bytes.Contains(b, []byte("<script>")) {
		t.Fatal(string(b), err)
	}
}

func TestUntil(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "now over", 0: "now over", 59 * time.Second: "in less than a minute", time.Minute: "in 1 minute",
		14*time.Minute + 59*time.Second: "in 14 minutes", time.Hour: "in 1 hour", 90 * time.Minute: "in 1 hour 30 minutes",
		26 * time.Hour: "in 1 day 2 hours", 48*time.Hour + time.Minute: "in 2 days",
	} {
		if got := Until(now, now.Add(d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// Colours keep WCAG AA: 4.5 to 1 for text, 3 to 1 for edges, in both schemes.
func TestContrast(t *testing.T) {
	dark := strings.Index(css, "prefers-color-scheme: dark")
	for scheme, part := range map[string]string{"light": css[:dark], "dark": css[dark:]} {
		c := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{3,6})`).FindAllStringSubmatch(part, -1) {
			if _, seen := c[m[1]]; !seen {
				c[m[1]] = luminance(m[2])
			}
		}
		for _, r := range []struct {
			fg, bg string
			min    float64
		}{
			{"text", "bg", 4.5}, {"text", "card", 4.5}, {"text", "code", 4.5}, {"text", "warn", 4.5}, {"dim", "bg", 4.5}, {"dim", "card", 4.5}, {"dim", "warn", 4.5},
			{"on", "yes", 4.5}, {"no", "card", 4.5}, {"line", "bg", 3}, {"line", "card", 3}, {"warn-line", "bg", 3}, {"focus", "bg", 3}, {"focus", "card", 3},
		} {
			if got := contrast(c[r.fg], c[r.bg]); got < r.min {
				t.Errorf("%s: %s on %s is %.2f, want %.1f", scheme, r.fg, r.bg, got, r.min)
			}
		}
	}
}

func contrast(a, b float64) float64 { return (max(a, b) + .05) / (min(a, b) + .05) }

func luminance(hex string) float64 {
	h := hex[1:]
	if len(h) == 3 {
		h = string([]byte{h[0], h[0], h[1], h[1], h[2], h[2]})
	}
	var sum float64
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(h[2*i:2*i+2], 16, 8)
		if err != nil {
			panic(err)
		}
		v := float64(n) / 255
		if v <= .04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

// TestWriteSample writes the pages to a directory for a look in a browser.
func TestWriteSample(t *testing.T) {
	dir := os.Getenv("PAGE_SAMPLES")
	if dir == "" {
		t.Skip("PAGE_SAMPLES is not set")
	}
	long := sample()
	decided := sample()
	decided.Form, decided.Status = nil, "Your answer was recorded: approve. It was approved by ana and is running."
	deny := sample()
	deny.Form = &Form{WhyNot: "A link alone can't approve this, only deny it."}
	deny.Missing, deny.Notice = []string{"900 bytes of /body"}, "This page was open for too long. Nothing was recorded."
	for name, a := range map[string]Approval{"pending": long, "decided": decided, "deny": deny} {
		if err := os.WriteFile(dir+"/"+name+".html", []byte(draw(t, a)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
