package action

import (
	"encoding/json"
	"testing"
)

// Names that Alike takes for the same are those that Check does not take in one
// object.
func TestAlikeIsWhatCheckRefuses(t *testing.T) {
	names := []string{"a", "A", "path", "Path", "pAth", "ｐath", "skip", "ſkip", "Key", "\u212aey", "é", "e\u0301", "ß", "ss", "SS", "ﬁ", "fi", "İ", "i", "ı", "a_b", "aB", "", "x", "Å", "\u212b", "µ", "μ"}
	met := 0
	for i, a := range names {
		for j, b := range names {
			if i == j {
				continue
			}
			object, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			other, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			text := "{" + string(object) + ":1," + string(other) + ":2}"
			refused := Check([]byte(text), Limits{}) != nil
			if got := Alike([]byte(a), []byte(b)); got != refused {
				t.Errorf("%s: alike %v, refused %v", text, got, refused)
			}
			if refused {
				met++
			}
		}
	}
	if met < 20 || !Alike([]byte("x"), []byte("x")) {
		t.Errorf("only %d pairs met", met)
	}
}
