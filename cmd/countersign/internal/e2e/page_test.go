package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/e2e/testservers"
	"github.com/countersign-mcp/countersign/webhook/page"
)

// phone is the width in CSS pixels of a common one.
const phone = 390

// The page behind a link is read on a phone, by day and by night: a real browser
// draws it without a script, nothing sticks out at the side, and the buttons are
// as wide as a thumb needs.
func TestPageOnAPhone(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	d := startDemo(t, "--serve", "--wait", "10m")
	m := d.out.find(t, regexp.MustCompile(`orders (\S+) --header "Authorization: Bearer (\S+)"`), d.dead)
	c := testservers.NewHTTP(m[1], m[2], testservers.Modern)
	ctx, hangUp := context.WithTimeout(t.Context(), 3*time.Minute)
	defer hangUp()
	if _, err := c.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { // the caller waits while the page is looked at, then leaves
		_, _ = c.Call(ctx, "cancel_order", json.RawMessage(`{"order_id":"`+strings.Repeat("W", 32)+`"}`), testservers.Extra{})
	}()
	link := d.link()
	real := open(t, link).text
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			shot := browser.screenshot(t, link, theme)
			bright := brightness(t, shot)
			if theme == "light" && bright < 0.7 || theme == "dark" && bright > 0.3 {
				t.Errorf("the %s page has a brightness of %.2f", theme, bright)
			}
		})
	}
	for name, html := range map[string]string{"real": real, "hostile": hostilePage(t)} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(strings.ToLower(html), "<script") {
				t.Error("there is a script on the page")
			}
			m := browser.measure(t, html)
			if m.Inner != phone || m.Scroll > m.Inner || m.Widest > m.Inner {
				t.Errorf("it is wider than the screen: %+v", m)
			}
			if m.Buttons != 2 || m.Lowest < 44 {
				t.Errorf("the buttons: %+v", m)
			}
		})
	}
}

// hostilePage is a page with all its parts, full of text that no line breaks.
func hostilePage(t *testing.T) string {
	t.Helper()
	long := strings.Repeat("W", 300)
	b, err := page.Render(page.Approval{
		Title: long, Who: long, Server: long, Tool: long, Tier: long, Why: []string{long}, Text: long + "\n" + long,
		Now: time.Now(), Deadline: time.Now().Add(time.Hour),
		Masked: []page.Mask{{Pointer: "/" + long, Type: "string", Len: 1}}, Warnings: []string{long}, Missing: []string{long},
		Needed: []string{long}, Status: long, Notice: long,
		Form: &page.Form{Nonce: "n", MayApprove: true, Reason: long, Unticked: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type browser struct{ path string }

func chromium(t *testing.T) browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "/usr/bin/chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			return browser{path}
		}
	}
	t.Skip("no chromium on the PATH")
	return browser{}
}

func (b browser) run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(within(t, 90*time.Second), b.path, append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir=" + t.TempDir(),
	}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", b.path, err, errs.String())
	}
	return out
}

func (b browser) screenshot(t *testing.T, link, theme string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), theme+".png")
	if dir := os.Getenv("COUNTERSIGN_SCREENSHOTS"); dir != "" { // for people who want to look
		file = filepath.Join(dir, theme+".png")
	}
	scheme := map[string]string{"light": "1", "dark": "0"}[theme] // blink's PreferredColorScheme
	b.run(t, fmt.Sprintf("--window-size=%d,1100", phone), "--blink-settings=preferredColorScheme="+scheme, "--screenshot="+file, link)
	return file
}

// brightness is the mean of a picture's pixels, 0 for black.
func brightness(t *testing.T, file string) float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	box, sum := img.Bounds(), 0.0
	if box.Dx() != phone {
		t.Errorf("the picture is %d wide", box.Dx())
	}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			sum += float64(r+g+b) / (3 * 0xffff)
		}
	}
	return sum / float64(box.Dx()*box.Dy())
}

// measures of a page as it is laid out, in CSS pixels.
type measures struct {
	Inner, Scroll, Widest int // of the window, of the document, the right edge that is farthest
	Buttons, Lowest       int // how many, and the height of the least
}

// measure lays the page out in a frame as wide as a phone. The script that reads
// the sizes is the test's, outside of the page.
func (b browser) measure(t *testing.T, html string) measures {
	t.Helper()
	outer := fmt.Sprintf(`<!DOCTYPE html><body><iframe id="f" style="border:0;width:%dpx;height:1000px"></iframe><script>
const f = document.getElementById("f");
f.onload = () => {
  const w = f.contentWindow, d = w.document, all = [...d.querySelectorAll("body *")], buttons = [...d.querySelectorAll("button")];
  const widest = Math.ceil(Math.max(...all.map(e => e.getBoundingClientRect().right)));
  const lowest = Math.floor(Math.min(...buttons.map(e => e.getBoundingClientRect().height)));
  document.body.dataset.sizes = [w.innerWidth, d.documentElement.scrollWidth, widest, buttons.length, lowest].join(" ");
};
f.srcdoc = %s;
</script>`, phone, strings.ReplaceAll(quoted(html), "</", `<\/`))
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(outer), 0o600); err != nil {
		t.Fatal(err)
	}
	dom := b.run(t, "--window-size=800,1100", "--virtual-time-budget=5000", "--dump-dom", "file://"+file)
	m := regexp.MustCompile(`data-sizes="(\d+) (\d+) (\d+) (\d+) (\d+)"`).FindSubmatch(dom)
	if m == nil {
		t.Fatalf("the page was not measured:\n%.2000s", dom)
	}
	var n [5]int
	for i := range n {
		n[i], _ = strconv.Atoi(string(m[i+1])) // digits
	}
	return measures{n[0], n[1], n[2], n[3], n[4]}
}
