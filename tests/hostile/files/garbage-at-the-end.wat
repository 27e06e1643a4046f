;; attack: A good policy with text behind it.
;; expect: load -> invalid
;; bytes: append and now for something else
