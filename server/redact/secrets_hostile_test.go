package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
)

// falling opens one quotation after the other, none of which the next can end.
func falling(word string, size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size; n++ {
		b.WriteString(word + strings.Repeat(`\`, n) + `"`)
	}
	return b.String()
}

// hostile texts make a naive search go over the same bytes again and again.
func hostileTexts(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	return map[string]string{
		"plain":        fill("lorem ipsum dolor "),
		"letters":      fill("a"),
		"jwt heads":    fill("eyJ"),
		"jwt dots":     fill("eyJ."),
		"begins":       fill("-----BEGIN A-----"),
		"dashes":       fill("-"),
		"begin words":  fill("BEGIN "),
		"schemes":      fill("://a:b/"),
		"authorities":  fill("://a:b@"),
		"bearers":      fill("bearer "),
		"bearer runs":  fill("bearer+"),
		"basics":       fill("basic basic"),
		"parameters":   fill("?token=&"),
		"names":        fill(`"token":`),
		"slashes":      fill(`\"token\":\"`),
		"quotes":       fill(`"`),
		"backslashes":  fill(`\`),
		"brackets":     fill("["),
		"broken JSON":  `{"` + fill("a.") + `":`,
		"escapes":      fill(`\u0041`),
		"keys":         fill("AKIA"),
		"keys by tens": fill("ghp_ xoxb- sk_live_ "),
		"whole keys":   fill("AKIAIOSFODNN7EXAMPLE "),
		"JSON":         "[" + fill(`{"a":"b"},`) + "1]",
		"JSON, deep":   "[" + fill(strings.Repeat(`{"a":`, 20)+"1"+strings.Repeat("}", 20)+",") + "1]",
		"JSON, masked": "[" + fill(`{"token":"b"},`) + "1]",
		"options":      fill("--token a(-"),
		"openings":     falling("password ", size),
		"option heads": fill("-" + "-a"),
		"headers":      fill("Cookie: a=\"b "),
		"blocks":       fill("token: |\n"),
		"block":        "token: |\n" + fill(" \n"),
		"elements":     fill("<token>"),
		"open element": "<" + fill("a ") + ">",
		"pairs":        fill("name: token\nvalue: "),
		"forms":        fill("form-data; name=\"token\"\n"),
		"calls":        fill("token=a(a=a(b"),
		"sentences":    fill("password is "),
		"shells":       fill("mysql -u curl @ sshpass "),
		"addresses":    fill(" a:b@"),
		"percents":     fill("%41%"),
		"entities":     fill("&#65;&quot;"),
		"base64":       base64.StdEncoding.EncodeToString([]byte(fill("token is "))),
		"base64 twice": base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(fill(`%41 \u0041 &#65; é `))))))),
		"base64 runs":  fill("cGFzc3dvcmQgaXMg "),
		"odd letters":  fill("\ufdfa\u0430a"),
		"words apart":  fill("\u0430 "),
		"one word":     fill("\u0430a"),
		"marks":        fill("\u0301"),
		"invisible":    fill("\u200b"),
		"options list": "[" + fill(`"--token","a",`) + "1]",
		"PEM lines":    "[" + fill(`"-----BEGIN A-----",`) + "1]",
		"pair objects": "[" + fill(`{"name":"token","value":"a"},`) + "1]",
		"rows, deep":   strings.Repeat("[", 30) + fill(`["token","a"],`) + "1" + strings.Repeat("]", 30),
		"JSON, names":  `{"` + fill("n") + `":[` + fill(`{"token":1},`) + `1]}`,
	}
}

// What a caller chooses must cost what its size costs, not the square of that: the
// bytes that are read and the memory that is taken, for texts that a naive search
// would read again and again.
func TestHostileTexts(t *testing.T) {
	steps := 0
	onRead = func(n int) { steps += n + 1 }
	defer func() { onRead = nil }()
	size := 32 << 10
	if raceEnabled {
		size = 4 << 10
	}
	for name, s := range hostileTexts(size) {
		for shape, args := range map[string]any{"value": map[string]string{"s": s}, "name": map[string]int{s: 1}, "JSON in text": map[string]string{"s": `{"a":` + string(quote(s)) + `}`}} {
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			steps = 0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, v := Render(action.Call{Tool: "t", Args: raw}, Rules{Title: "{s}"}, keyed)
			runtime.ReadMemStats(&after)
			if v.Text == "" {
				t.Fatal("nothing was drawn")
			}
			took := (after.TotalAlloc - before.TotalAlloc) / uint64(size)
			if steps > 300*size {
				t.Errorf("%s as %s: %d times its size was read", name, shape, steps/size)
			}
			if took > 1500 && !raceEnabled {
				t.Errorf("%s as %s: %d times its size was taken", name, shape, took)
			}
		}
	}
}

func BenchmarkSecrets(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for name, s := range hostileTexts(size) {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				d := &drawing{names: newNames(nil), aws: true}
				b.SetBytes(int64(len(s)))
				for b.Loop() {
					d.secrets(s, 0)
				}
			})
		}
	}
}
