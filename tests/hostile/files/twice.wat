;; attack: A good policy and the same once more, in one file.
;; expect: load -> malformed
;; bytes: twice
