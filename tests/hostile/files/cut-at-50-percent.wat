;; attack: The first 50 % of a good policy.
;; expect: load -> malformed
;; bytes: cut 50
