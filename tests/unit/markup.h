/* markup.h - readers of XML, DOT and JSON for tests of reports: NULL for a text that is well-formed, else the place of
 * the fault. They are strict rather than complete: what the reports do not use is a fault. */
#pragma once

/* One element with all that is in it: tags that match, attributes in double quotes, the five entities and numeric ones,
 * valid UTF-8 of characters that XML has. */
const char *xml_fault(const char *text);

/* A digraph: statements, braces that match, strings, and HTML-like labels that are XML. */
const char *dot_fault(const char *text);

/* Lines of characters: valid UTF-8 without control codes, and line ends. */
const char *lines_fault(const char *text);

/* One value of JSON, with strings of valid UTF-8. */
const char *json_fault(const char *text);
