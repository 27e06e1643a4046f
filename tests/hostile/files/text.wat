;; attack: A good policy in the text format.
;; expect: load -> text
;; bytes: text
