package slacktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Limits of Block Kit, in characters or items.
const (
	maxBlocks      = 50
	maxViewBlocks  = 100
	maxBlocksBytes = 13_200 // no documented limit; refusals were seen from here
	maxText        = 3000
	maxFieldText   = 2000
	maxFields      = 10
	maxHeader      = 150
	maxContext     = 10
	maxActions     = 25
	maxID          = 255
	maxButtonText  = 75
	maxButtonValue = 2000
	maxURL         = 3000
	maxMarkdown    = 12_000
)

// checker collects what is wrong with blocks, each with its JSON pointer.
type checker struct {
	s        *Slack
	modal    bool
	errs     []string
	warns    []string
	blockIDs map[string]bool
	actions  map[string]bool
	markdown int
	tables   int
}

func (c *checker) err(pointer, format string, a ...any) {
	c.errs = append(c.errs, fmt.Sprintf(format, a...)+" [json-pointer:"+pointer+"]")
}

func (c *checker) warn(pointer, format string, a ...any) {
	c.warns = append(c.warns, pointer+": "+fmt.Sprintf(format, a...))
}

// checkBlocks decodes and checks an array of blocks and fills in missing ids.
// Needs mu.
func (s *Slack) checkBlocks(raw json.RawMessage, modal bool) ([]map[string]any, []string, *refusal) {
	var list []any
	if err := decode(raw, &list); err != nil {
		return nil, nil, refuse("invalid_blocks_format")
	}
	c := &checker{s: s, modal: modal, blockIDs: map[string]bool{}, actions: map[string]bool{}}
	limit := maxBlocks
	if modal {
		limit = maxViewBlocks
	}
	if len(list) > limit {
		c.err("/blocks", "no more than %d items allowed", limit)
	}
	blocks := make([]map[string]any, 0, len(list))
	for i, b := range list {
		p := fmt.Sprintf("/blocks/%d", i)
		m, ok := b.(map[string]any)
		if !ok {
			c.err(p, "must be an object")
			continue
		}
		c.block(p, m)
		blocks = append(blocks, m)
	}
	if c.markdown > maxMarkdown {
		c.err("/blocks", "markdown blocks must be less than %d characters in all", maxMarkdown+1)
	}
	if c.tables > 1 {
		c.err("/blocks", "only one table is allowed")
	}
	if len(c.errs) > 0 {
		messages := make([]string, len(c.errs))
		for i, e := range c.errs {
			messages[i] = "[ERROR] " + e
		}
		return nil, nil, &refusal{"invalid_blocks", object{"errors": c.errs, "response_metadata": object{"messages": messages}}}
	}
	return blocks, c.warns, nil
}

func (c *checker) block(p string, b map[string]any) {
	switch kind := str(b["type"]); kind {
	case "section":
		c.only(p, b, "block_id", "text", "fields", "accessory", "expand")
		c.section(p, b)
	case "header":
		c.only(p, b, "block_id", "text", "level")
		c.text(p+"/text", b["text"], maxHeader, "plain_text")
	case "divider":
		c.only(p, b, "block_id")
	case "context":
		c.only(p, b, "block_id", "elements")
		c.each(p, b, maxContext, func(q string, e map[string]any) {
			if e["type"] == "image" {
				c.element(q, e)
				return
			}
			c.text(q, e, maxText, "")
		})
	case "actions":
		c.only(p, b, "block_id", "elements")
		c.each(p, b, maxActions, c.element)
	case "rich_text":
		c.only(p, b, "block_id", "elements")
		c.each(p, b, 0, c.richBlock)
	case "image":
		c.only(p, b, "block_id", "image_url", "alt_text", "title", "slack_file")
		c.length(p+"/alt_text", b["alt_text"], 1, 2000)
		if b["slack_file"] == nil {
			c.length(p+"/image_url", b["image_url"], 1, maxURL)
		}
	case "markdown":
		c.only(p, b, "block_id", "text")
		c.length(p+"/text", b["text"], 1, maxMarkdown)
		c.markdown += chars(str(b["text"]))
	case "table":
		c.only(p, b, "block_id", "rows", "column_settings")
		c.table(p, b)
	case "input":
		c.only(p, b, "block_id", "label", "element", "hint", "optional", "dispatch_action")
		c.text(p+"/label", b["label"], 2000, "plain_text")
		e, ok := b["element"].(map[string]any)
		if !ok {
			c.err(p+"/element", "missing element")
			break
		}
		c.element(p+"/element", e)
	case "":
		c.err(p+"/type", "missing required field: type")
	default:
		c.err(p+"/type", "Unsupported block type: %s", kind)
	}
	c.id(p+"/block_id", b, "block_id", c.blockIDs)
}

func (c *checker) section(p string, b map[string]any) {
	fields, has := b["fields"]
	if b["text"] == nil && !has {
		c.err(p, "missing required field: text or fields")
	}
	if b["text"] != nil {
		c.text(p+"/text", b["text"], maxText, "")
	}
	if has {
		list, _ := fields.([]any)
		if len(list) < 1 || len(list) > maxFields {
			c.err(p+"/fields", "must have 1 to %d items", maxFields)
		}
		for i, f := range list {
			c.text(fmt.Sprintf("%s/fields/%d", p, i), f, maxFieldText, "")
		}
	}
	if acc, ok := b["accessory"]; ok {
		e, _ := acc.(map[string]any)
		c.element(p+"/accessory", e)
	}
}

func (c *checker) table(p string, b map[string]any) {
	c.tables++
	rows, _ := b["rows"].([]any)
	if len(rows) < 1 || len(rows) > 100 {
		c.err(p+"/rows", "must have 1 to 100 rows")
	}
	for i, r := range rows {
		if cells, _ := r.([]any); len(cells) < 1 || len(cells) > 20 {
			c.err(fmt.Sprintf("%s/rows/%d", p, i), "must have 1 to 20 cells")
		}
	}
}

// only refuses members that the object doesn't have in Slack.
func (c *checker) only(p string, m map[string]any, allowed ...string) {
	for _, k := range sortedKeys(m) {
		if k != "type" && !slices.Contains(allowed, k) {
			c.err(p, "invalid additional property: %s", k)
		}
	}
}

// each checks the elements of a block; limit 0 is none.
func (c *checker) each(p string, b map[string]any, limit int, f func(string, map[string]any)) {
	list, ok := b["elements"].([]any)
	if !ok || len(list) == 0 {
		c.err(p+"/elements", "must have at least 1 item")
		return
	}
	if limit > 0 && len(list) > limit {
		c.err(p+"/elements", "no more than %d items allowed", limit)
	}
	for i, e := range list {
		q := fmt.Sprintf("%s/elements/%d", p, i)
		m, ok := e.(map[string]any)
		if !ok {
			c.err(q, "must be an object")
			continue
		}
		f(q, m)
	}
}

func (c *checker) length(p string, v any, least, most int) {
	s, ok := v.(string)
	switch n := chars(s); {
	case !ok:
		c.err(p, "must be a string")
	case n > most:
		c.err(p, "must be less than %d characters", most+1)
	case n < least:
		c.err(p, "must be more than %d characters", least-1)
	}
}

// text checks a text object; kind "" allows both.
func (c *checker) text(p string, v any, most int, kind string) {
	t, ok := v.(map[string]any)
	if !ok {
		c.err(p, "missing text object")
		return
	}
	got := str(t["type"])
	switch {
	case got != "plain_text" && got != "mrkdwn":
		c.err(p+"/type", "must be plain_text or mrkdwn")
	case kind != "" && got != kind:
		c.err(p+"/type", "must be %s", kind)
	}
	c.length(p+"/text", t["text"], 1, most)
	if got == "plain_text" {
		c.only(p, t, "text", "emoji")
		return
	}
	c.only(p, t, "text", "verbatim")
	body := str(t["text"])
	if t["verbatim"] != true {
		c.warn(p, "mrkdwn without verbatim links addresses, #channels and @here by itself")
	}
	if strings.Contains(body, "<!channel") || strings.Contains(body, "<!here") || strings.Contains(body, "<!everyone") {
		c.warn(p, "mrkdwn notifies everyone")
	}
	for _, m := range mentionToken.FindAllStringSubmatch(body, -1) {
		c.mention(p, strings.TrimPrefix(strings.TrimPrefix(m[1], "@"), "!subteam^"))
	}
}

// mention accepts only people and groups that exist.
func (c *checker) mention(p, id string) {
	if strings.HasPrefix(id, "!") {
		return
	}
	_, user := c.s.user(id)
	_, group := c.s.groups[id]
	if !user && !group {
		c.err(p, "unknown user or user group %s", id)
	}
}

// id checks an id, keeps it unique in the message, and makes one if missing.
func (c *checker) id(p string, m map[string]any, key string, seen map[string]bool) {
	v, ok := m[key]
	if !ok || v == "" {
		m[key] = c.s.id("")
		return
	}
	c.length(p, v, 1, maxID)
	id := str(v)
	if seen[id] {
		c.err(p, "%s already exists: %s", key, id)
	}
	seen[id] = true
}
