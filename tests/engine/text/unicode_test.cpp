#include "engine/text/unicode.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace attune {

TEST_CASE("ill-formed UTF-8 is told from well-formed", "[engine][text][unicode]") {
    for (const char* good :
         {"", "a", "\xC3\xA9", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD", "\xF4\x8F\xBF\xBF"}) {
        CHECK(is_valid_utf8(good));
    }
    for (const char* bad : {"\x80", "\xC0\x80", "\xC3", "\xE4\xBD", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                            "\xF5\x80\x80\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xFF", "a\xC3(b"}) {
        CHECK_FALSE(is_valid_utf8(bad));
    }
    CHECK(is_valid_utf8(std::string_view("a\0b", 3)));
}

TEST_CASE("only an unfinished last character is held back", "[engine][text][unicode]") {
    CHECK(complete_utf8_bytes("") == 0);
    CHECK(complete_utf8_bytes("abc") == 3);
    CHECK(complete_utf8_bytes("ab\xC3") == 2);
    CHECK(complete_utf8_bytes("ab\xE4\xBD") == 2);
    CHECK(complete_utf8_bytes("ab\xE4\xBD\xA0") == 5);
    CHECK(complete_utf8_bytes("\xF0\x9F\x98") == 0);
    CHECK(complete_utf8_bytes("a\x80") == 2);  // never to be finished
    CHECK(complete_utf8_bytes("\xFF") == 1);
}

TEST_CASE("bytes in pieces decode as the whole does", "[engine][text][unicode]") {
    const std::string bytes = "A\xE4\xBD\xA0\xFF\xF0\x9F\x98\xC3\xA9\xED\xA0\x80Z\xE4";
    const std::string expected =
        "A\xE4\xBD\xA0\xEF\xBF\xBD\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDZ\xEF\xBF\xBD";
    for (std::size_t size = 1; size <= bytes.size(); ++size) {
        LossyUtf8 decoder;
        std::string text;
        for (std::size_t at = 0; at < bytes.size(); at += size) {
            decoder.push(std::string_view(bytes).substr(at, size), text);
            CHECK(is_valid_utf8(text));
        }
        decoder.flush(text);
        CHECK(text == expected);
    }
}

TEST_CASE("texts that a reader calls equal fold to equal bytes", "[engine][text][unicode]") {
    struct Pair {
        const char* left;
        const char* right;
    };
    const std::vector<Pair> equal = {
        {"Code", "CODE"},
        {"ＣＯＤＥ", "code"},
        {"Straße", "STRASSE"},
        {"é", "e\xCC\x81"},
        {"ﬁle", "FILE"},
        {"ｶﾞ", "ガ"},
        {"代码", "代码"},
        {"①", "1"},
        {"Å", "å"},
        {"ΣΊΣΥΦΟΣ", "σίσυφος"},
        {"한글", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB\xE1\x84\x80\xE1\x85\xB3\xE1\x86\xAF"},
        {"㈱", "(株)"},
        {"K", "k"},
    };
    for (const Pair& pair : equal) CHECK(fold_for_matching(pair.left) == fold_for_matching(pair.right));
    CHECK(fold_for_matching("é") != fold_for_matching("e"));
    CHECK(fold_for_matching("代码") != fold_for_matching("代碼"));
}

TEST_CASE("folding twice changes nothing more", "[engine][text][unicode]") {
    for (const char* text : {"ＳｔｒａßＥ", "ﬃ", "İstanbul", "ᾼ", "Ω", "ǅ"}) {
        const std::string once = fold_for_matching(text);
        CHECK(fold_for_matching(once) == once);
    }
}

TEST_CASE("scripts without spaces have no letters to look for boundaries at", "[engine][text][unicode]") {
    for (const char32_t c : {U'a', U'é', U'я', U'λ', U'7', U'ع', U'한', U'अ'}) CHECK(is_spaced_script_letter(c));
    for (const char32_t c : {U'代', U'の', U'カ', U'ก', U'ກ', U'က', U'ខ', U' ', U'-', U'。'}) {
        CHECK_FALSE(is_spaced_script_letter(c));
    }
}

TEST_CASE("the normal forms compose and decompose", "[engine][text][unicode]") {
    CHECK(normalize("e\xCC\x81", NormalForm::nfc) == "é");
    CHECK(normalize("é", NormalForm::nfd) == "e\xCC\x81");
    CHECK(normalize("ﬁ①", NormalForm::nfkc) == "fi1");
    CHECK(normalize("ｶﾞ", NormalForm::nfkd) == "カ\xE3\x82\x99");
    CHECK(normalize(std::string_view("a\0é", 4), NormalForm::nfd) == std::string("a\0e\xCC\x81", 5));
}

}  // namespace attune
