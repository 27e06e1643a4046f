;; attack: A good policy with text behind it.
;; expect: load -> malformed
;; bytes: append and now for something else
