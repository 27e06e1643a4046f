;; attack: The first 10 % of a good policy.
;; expect: load -> malformed
;; bytes: cut 10
